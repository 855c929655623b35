"""The nursery: imports TensorFlow once, and forks the programs of all tasks from there.

Four processes that import TensorFlow at once, on two cores, take 8 s; one alone takes 1.6. So one
process does it while the environment boots. It then forks a *cradle* for each task, which moves to
the task's node and waits for the agent's word; a program is forked from its task's cradle, and is
what it would be if it had been started by itself (`become`). Its command line in
`/proc` stays that of the process it was forked from; its name there is the task's.

The cradle is the program's parent: it keeps the exit code until the agent asks for it, adopts what
the program leaves behind, and ends all of it when the agent has gone, whose end of the socket pair
closes then. When the cradle dies, the kernel ends the program.

A fork takes along one thread only, and whatever lock another one held stays locked. So it is done
only while there is one thread, and with no graphics card open. OpenBLAS has threads after its
import; it ends them itself before a fork, and starts new ones on both sides. Where anything is
otherwise, nothing is forked, and each agent starts its program as before.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import importlib
import os
import signal
import socket
import sys
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final, NoReturn

from lab.task.agent import process
from lab.task.agent.fork_client import ConnectionClosed, receive, send

COMMAND: Final = f"import sys; sys.path.pop(0); import {__name__} as own; own.main(sys.argv)"
"""What Python is given with `-c`: unlike `-P`, it leaves no trace in the programs' `sys.flags`, and
nothing of the current directory is imported either."""

MODULE: Final = "tensorflow"

_ITS_OWN: Final = frozenset(
    {
        # Each task's, and read when a cluster, a device or a channel is made, not at the import.
        "TF_CONFIG",
        "CUDA_VISIBLE_DEVICES",
        "no_grpc_proxy",
    }
)
_LAB: Final = "LAB_"
_NOT_STARTED: Final = 126
"""What a shell says of a program that it found and could not start."""

_OPENBLAS_THREADS: Final = (
    "scipy_openblas_{}_num_threads64_",  # as NumPy's wheels have it
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


def argv(sockets: Sequence[int]) -> list[str]:
    """The command line behind the interpreter, for a child of this process.

    Args:
        sockets: Descriptors of its ends of the socket pairs, one for each task.
    """
    return ["-c", COMMAND, str(os.getpid()), *map(str, sockets)]


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a process that was just forked is to become."""

    argv: list[str]
    environ: dict[str, str]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import found, and left.

    Attributes:
        before: The variables that it found.
        brought: Those that it has set or changed.
    """

    before: Mapping[str, str]
    changed: Mapping[str, str]

    def unavailable_reason(self, environ: Mapping[str, str]) -> str | None:
        """Why a program with these variables has to import for itself; None where it need not."""
        found, wanted = _relevant_environ(self.before), _relevant_environ(environ)
        differ = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        return f"it has another {', '.join(differ)}" if differ else None


def _relevant_environ(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environ.items()
        if name not in _ITS_OWN and not name.startswith(_LAB)
    }


def main(argv: Sequence[str]) -> None:
    """Import, and fork a cradle for each task; in a process that became a program, run that."""
    # Whoever started it may be killed while the import hangs.
    process.set_pdeathsig(int(argv[1]))
    ends = [socket.socket(fileno=int(argument)) for argument in argv[2:]]
    imported, why_not = import_once()
    if why_not is not None:
        for end in ends:
            with contextlib.suppress(OSError):  # its agent has gone already
                send(end, {"why_not": why_not})
        return
    cradles = []
    for end in ends:
        if pid := os.fork():
            cradles.append(pid)
            continue
        for other in ends:
            if other is not end:
                other.close()
        if (fork_request := _serve(end, imported)) is not None:
            exec_program(fork_request.argv, fork_request.environ, imported.changed)
        os._exit(0)
    for end in ends:
        end.close()
    # The cradles end with their agents; told to go, it goes with the last of them.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for pid in cradles:
        os.waitpid(pid, 0)


def import_once(module: str = MODULE) -> tuple[Imported, str | None]:
    """Import a module, so that processes can be forked behind it.

    Returns:
        What it found and left, and why nothing may be forked all the same; None where it may.
    """
    before = dict(os.environ)
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 (the programs will say it again, each for itself)
        return Imported(before, {}), f"{module} cannot be imported here: {type(error).__name__}"
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    # Objects that are never looked at by the collector again stay on pages that all share.
    gc.collect()
    gc.freeze()
    _prefork()
    return Imported(before, changed), _unsafe_reason()


def _prefork() -> None:
    """Fork for nothing: a library that ends its threads before a fork has done so now."""
    if not (pid := os.fork()):
        os._exit(0)
    os.waitpid(pid, 0)


def _unsafe_reason() -> str | None:
    """Why this process must not fork what uses what it has imported."""
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    if threads > 1:
        return f"its import leaves {threads - 1} threads behind"
    opened = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{name}"))  # noqa: PTH115
    if any(path.startswith("/dev/nvidia") for path in opened):
        return "its import opens the graphics cards"
    return None


def _serve(end: socket.socket, imported: Imported) -> ForkRequest | None:
    """Serve one agent until it has gone; in a process that was born: what that is to become."""
    os.setpgid(0, 0)
    process.set_subreaper()
    entered = False
    with contextlib.suppress(ConnectionClosed, OSError):
        send(end, {"why_not": None})
        while True:
            message, output = receive(end)
            if output is None:
                send(end, {"code": _reap(message["reap"])})
                continue
            try:
                if differs := imported.unavailable_reason(message["environ"]):
                    send(end, {"why_not": differs})
                    continue
                if not entered:
                    _enter_namespaces(message["agent"])
                    entered = True
                fork_client = os.getpid()
                if not (pid := os.fork()):
                    end.close()
                    try:
                        _prepare_child(fork_client, message, output)
                    except OSError as error:
                        # Not to be caught as the cradle's: no program has run, none has succeeded.
                        os.write(output, f"error: {error}\n".encode())
                        os._exit(_NOT_STARTED)
                    return ForkRequest(message["argv"], message["environ"])
                # Both do it, so that it is done whoever comes first.
                os.setpgid(pid, pid)
                send(end, {"pid": pid})
            except OSError as error:
                send(end, {"why_not": f"no process was forked: {error.strerror}"})
            finally:
                os.close(output)
    process.reap_children()
    return None


def _enter_namespaces(agent: int) -> None:
    """Move into the namespaces of a process, as far as they are others than this one's."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("net", "uts", "mnt"):
        theirs = Path(f"/proc/{agent}/ns/{name}")
        if theirs.samefile(f"/proc/self/ns/{name}"):
            continue
        descriptor = os.open(theirs, os.O_RDONLY)
        try:
            if libc.setns(descriptor, 0) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
        finally:
            os.close(descriptor)


def _reap(pid: int) -> int:
    """The exit code of a program that has ended, negative for a signal; nothing of it is left."""
    _, status = os.waitpid(pid, 0)
    process.reap_children()
    return os.waitstatus_to_exitcode(status)


def _prepare_child(fork_client: int, message: Mapping[str, Any], output: int) -> None:
    """What lies between fork and exec where a program is started by itself."""
    os.setpgid(0, 0)
    process.set_pdeathsig(fork_client)
    process.set_process_name(message["environ"].get("LAB_TASK", ""))
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(message["folder"])
    cpus = os.sched_getaffinity(message["agent"])
    if cpus != os.sched_getaffinity(0):
        os.sched_setaffinity(0, cpus)
        limit_openblas_threads(len(cpus))


def limit_openblas_threads(cpus: int) -> None:
    """Let NumPy's matrix products use no more threads than there are CPUs; it has counted before.

    Args:
        cpus: How many the process may run on. Where a variable asks for fewer threads, that holds.
    """
    lines = Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines()
    for path in {line.split(maxsplit=5)[5] for line in lines if "openblas" in line}:
        # Without it a product takes longer, and is the same.
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(path)
            for name in _OPENBLAS_THREADS:
                with contextlib.suppress(AttributeError):
                    most = getattr(library, name.format("get"))()
                    getattr(library, name.format("set"))(min(most, cpus))
                    break


def exec_program(
    argv: Sequence[str], environ: Mapping[str, str], brought: Mapping[str, str]
) -> NoReturn:
    """Run a program as `__main__`, and leave the way that Python would.

    Args:
        argv: The interpreter, the program, its arguments.
        environ: The program's variables.
        brought: Variables that an import has set; they are the program's, too.

    Raises:
        SystemExit: The program has ended; it has to reach the top of the process.
    """
    program, *arguments = argv[1:]
    os.environ.clear()
    os.environ.update({**environ, **brought})
    _forget_randomness()
    _forget_the_host()
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        # Whatever of the lab the program imports, it finds as it is on disk now.
        del sys.modules[name]
    sys.argv[:] = [program, *arguments]
    sys.orig_argv[:] = argv
    sys.path.insert(0, str(Path(program).resolve().parent))
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=program,
        __loader__=SourceFileLoader("__main__", program),
        __builtins__=builtins,
        __cached__=None,
        __annotations__={},
    )
    sys.modules["__main__"] = main
    _run(program, main.__dict__)


def _run(program: str, namespace: dict[str, object]) -> NoReturn:
    try:
        source = Path(program).read_bytes()
        exec(compile(source, program, "exec", dont_inherit=True), namespace)  # noqa: S102
    except Exception as error:  # noqa: BLE001 (Python itself would report it, whatever it is)
        # Without the frame of this function, which is no part of the program.
        traceback = error.__traceback__ and error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        sys.exit(1)
    # A KeyboardInterrupt is left to Python, which ends the process by the signal itself.
    sys.exit(0)


def _forget_randomness() -> None:
    """What was seeded before the fork must not give all programs the same numbers.

    Python sees to its own; TensorFlow has not drawn yet when it is imported.
    """
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


def _forget_the_host() -> None:
    """What was asked of the host before the fork is another on the task's node: its name."""
    if platform := sys.modules.get("platform"):
        vars(platform)["_uname_cache"] = None
