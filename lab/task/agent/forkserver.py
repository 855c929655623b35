"""The fork server: it imports TensorFlow once, and forks the programs of all tasks.

Four processes that import TensorFlow at once, on two cores, take 8 s; one process takes 1.6 s. So
one process imports it while the environment boots. There are three kinds of processes, each with
its own function:

- `run_server`: the fork server. It imports TensorFlow and forks a task parent for each task.
- `run_task_parent`: it enters the node's namespaces and waits for requests of the task's agent. For
  each request it forks a program. It keeps the program's exit code until the agent requests it, and
  it adopts the program's orphans. When the agent ends, the socket closes, and the task parent kills
  all its children. When the task parent ends, the kernel kills the program.
- `run_program`: the program, which behaves like a newly started process. In `/proc` it keeps the
  fork server's command line; its process name is the task's name.

The last two never return. A program ends by an exception, as every Python program does. So no
function above it on the stack may catch one: the forks are outside of all `try` and `with`.

A fork copies only one thread, and a lock that another thread held stays locked. So the fork server
forks only while it has one thread and no GPU open. OpenBLAS has threads after its import. It ends
them before a fork and starts new ones in both processes. If any condition fails, the fork server
forks nothing, and each agent starts its program as a new process.

An agent and its task parent exchange JSON messages over a socket pair that keeps the bounds of
messages (SOCK_SEQPACKET). A message can carry one file descriptor. The agent has a `ForkClient`
(`lab.task.agent.fork_client`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from lab.base.parent_death import set_pdeathsig
from lab.base.variables import LAB_TASK
from lab.task.agent import process
from lab.task.own.main_module import exit_with_traceback, run_file

COMMAND: Final = f"import sys; sys.path.pop(0); import {__name__} as own; own.run_server(sys.argv)"
"""The code for Python's `-c`. Like `-P`, it imports nothing from the current directory; unlike
`-P`, it does not change the programs' `sys.flags`."""

MODULE: Final = "tensorflow"

_PER_TASK: Final = frozenset({"TF_CONFIG", "CUDA_VISIBLE_DEVICES", "no_grpc_proxy"})
"""Variables that differ per task. TensorFlow reads them later than at the import."""

_LAB: Final = "LAB_"
_NOT_STARTED: Final = 126
"""A shell's exit code for a program that it found and could not start."""

_MAX_BYTES: Final = 1 << 18
"""The limit for a message: more than the kernel accepts (`net.core.wmem_default`)."""


# ---- the messages


def send(sock: socket.socket, message: Mapping[str, object], descriptor: int | None = None) -> None:
    """Send a message.

    Args:
        sock: This process's socket.
        message: The message; it must be serializable as JSON.
        descriptor: A file descriptor; the other process gets a copy.

    Raises:
        OSError: The connection is closed, the message is too long, or the socket's time-out is
            over.
    """
    descriptors = [] if descriptor is None else [descriptor]
    socket.send_fds(sock, [json.dumps(message).encode()], descriptors)


def receive(sock: socket.socket) -> tuple[dict[str, Any], int | None]:
    """Wait for a message.

    Returns:
        The message, and its descriptor or None.

    Raises:
        OSError: The connection is closed, the message is invalid, or none arrived within the
            socket's time-out.
    """
    data, descriptors, _, _ = socket.recv_fds(sock, _MAX_BYTES, 1)
    try:
        return json.loads(data), descriptors[0] if descriptors else None
    except ValueError as error:  # without data, the connection is closed
        for descriptor in descriptors:
            os.close(descriptor)
        raise ConnectionError(str(error)) from error


# ---- the fork server


def argv(sockets: Sequence[int]) -> list[str]:
    """The fork server's arguments for the interpreter, for a child of this process.

    Args:
        sockets: Descriptors of its sockets, one for each task.
    """
    return ["-c", COMMAND, str(os.getpid()), *map(str, sockets)]


@dataclass(frozen=True, slots=True)
class Imported:
    """The environment variables of an import.

    Attributes:
        before: The variables before the import.
        changed: The variables that the import set or changed.
    """

    before: Mapping[str, str]
    changed: Mapping[str, str]

    def unavailable_reason(self, environ: Mapping[str, str]) -> str | None:
        """Why a program with these variables must import TensorFlow itself, or None."""
        names = {*self.before, *environ} - _PER_TASK
        differ = sorted(name for name in names if self.before.get(name) != environ.get(name))
        differ = [name for name in differ if not name.startswith(_LAB)]
        return f"it needs another value of {', '.join(differ)}" if differ else None


def run_server(argv: Sequence[str]) -> None:
    """Import TensorFlow, fork a task parent for each task, and wait until all of them have ended.

    Args:
        argv: "-c", the id of the process that started this one, and the descriptors of the sockets.
    """
    # The process that started it may be killed while the import hangs.
    set_pdeathsig(int(argv[1]))
    sockets = [socket.socket(fileno=int(argument)) for argument in argv[2:]]
    imported, reason = import_once()
    if reason is not None:
        for sock in sockets:
            with contextlib.suppress(OSError):  # its agent has ended
                send(sock, {"reason": reason})
        return
    parents = []
    for sock in sockets:
        pid = os.fork()
        if not pid:
            for other in sockets:
                if other is not sock:
                    other.close()
            run_task_parent(sock, imported)
        parents.append(pid)
    for sock in sockets:
        sock.close()
    # The task parents end with their agents. After that the fork server ends by itself.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in parents:
        os.waitpid(pid, 0)


def import_once() -> tuple[Imported, str | None]:
    """Import TensorFlow, so that processes can be forked after it.

    Returns:
        The variables of the import, and why nothing may be forked; None if forks are safe.
    """
    before = dict(os.environ)
    try:
        importlib.import_module(MODULE)
    except Exception as error:  # noqa: BLE001 (each program then reports the error itself)
        return Imported(before, {}), f"{MODULE} cannot be imported here: {type(error).__name__}"
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    # The garbage collector ignores frozen objects, so all processes share their memory pages.
    gc.collect()
    gc.freeze()
    # A fork that ends at once: libraries that stop threads before a fork do so now.
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)
    return Imported(before, changed), _unsafe_reason()


def _unsafe_reason() -> str | None:
    """Why this process must not fork programs after the import; None if it may."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    if threads > 1:
        return f"its import leaves {threads - 1} threads running"
    opened = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    if any(path.startswith("/dev/nvidia") for path in opened):
        return "its import opens the GPUs"
    return None


def run_task_parent(sock: socket.socket, imported: Imported) -> NoReturn:
    """Fork the programs of one task until its agent ends; then kill them and end."""
    os.setpgid(0, 0)
    process.set_subreaper()
    own_pid, has_entered = os.getpid(), False
    answer: dict[str, object] = {"reason": None}
    while (request := _next_request(sock, answer)) is not None:
        message, output = request
        if output is None:
            _, status = os.waitpid(message["reap"], 0)
            process.reap_children()  # the program's orphans
            answer = {"code": os.waitstatus_to_exitcode(status)}
            continue
        pid, reason = None, imported.unavailable_reason(message["environ"])
        try:
            if reason is None and not has_entered:
                _enter_namespaces(message["agent"])
                has_entered = True
            pid = os.fork() if reason is None else None
        except OSError as error:
            reason = f"the fork failed: {error.strerror}"
        if pid == 0:
            sock.close()
            run_program(own_pid, message, output, imported.changed)
        os.close(output)
        if pid is not None:
            os.setpgid(pid, pid)  # parent and child both do this, because either can be first
        answer = {"reason": reason} if pid is None else {"pid": pid}
    process.reap_children()
    os._exit(0)


def _next_request(
    sock: socket.socket, answer: Mapping[str, object]
) -> tuple[dict[str, Any], int | None] | None:
    """Send the answer to the last request, and wait for the next one.

    Returns:
        The message, and the descriptor of the program's output; without one, the message asks for
        the exit code of an ended program. None: the agent has ended.
    """
    try:
        send(sock, answer)
        return receive(sock)
    except OSError:
        return None


def _enter_namespaces(agent: int) -> None:
    """Enter the namespaces of a process that differ from this process's."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("net", "uts", "mnt"):
        theirs = Path(f"/proc/{agent}/ns/{name}")
        if theirs.samefile(f"/proc/self/ns/{name}"):
            continue
        with theirs.open("rb", buffering=0) as file:
            if libc.setns(file.fileno(), 0) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))


def run_program(
    parent: int, request: Mapping[str, Any], output: int, changed: Mapping[str, str]
) -> NoReturn:
    """Run the program of a request, as if it had been started as a new process.

    Args:
        parent: The process id of the task parent.
        request: The agent's request.
        output: The descriptor for the program's output; closed.
        changed: The variables that the import set; the program gets them too.

    Raises:
        SystemExit: The program has ended.
    """
    try:
        _prepare_process(parent, request, output)
    except OSError as error:
        os.write(output, f"error: {error}\n".encode())
        os._exit(_NOT_STARTED)
    os.close(output)
    run_as_main(request["argv"], {**request["environ"], **changed})


def run_as_main(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Run a program as `__main__` in this process, and end as Python would.

    Args:
        argv: The interpreter, the program, its arguments.
        environ: The program's variables.

    Raises:
        SystemExit: The program has ended.
    """
    _, program, *arguments = argv
    os.environ.clear()
    os.environ.update(environ)
    # Otherwise all forked programs would draw the same numbers. Python seeds its own generator
    # after a fork; TensorFlow draws no numbers at its import.
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
    # The task's node has another name.
    if platform := sys.modules.get("platform"):
        vars(platform)["_uname_cache"] = None
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        # The program imports the modules of lab as they are on disk now.
        del sys.modules[name]
    sys.path.insert(0, "")
    try:
        run_file(program, arguments)
    except Exception as error:  # noqa: BLE001 (Python would report any of them)
        exit_with_traceback(error)
    # Python handles a KeyboardInterrupt: it ends the process by the signal itself.
    sys.exit(0)


def _prepare_process(parent: int, request: Mapping[str, Any], output: int) -> None:
    """Set up a forked process as `ChildProcess` sets up a new one."""
    os.setpgid(0, 0)
    set_pdeathsig(parent)
    process.set_process_name(request["environ"].get(LAB_TASK, ""))
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(request["folder"])
    cpus = os.sched_getaffinity(request["agent"])
    if cpus != os.sched_getaffinity(0):
        os.sched_setaffinity(0, cpus)
