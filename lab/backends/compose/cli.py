"""The `docker compose` command, run as a child whose lines are shown while it works."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.backends import Notify
from lab.backends.compose.containers import ContainerInfo
from lab.backends.compose.error_hints import explain
from lab.backends.state import state_directory
from lab.errors import LabError
from lab.task.protocol.files import write_atomically
from lab.task.text import visible

TIMEOUT_S: Final = 30
"""Seconds that compose gets to compare a file with containers; it needs one."""

KEPT_LINES: Final = 200
"""Lines of a child that are remembered, to explain its failure."""

STOP_S: Final = 10.0
"""Seconds that a child gets to end after it was asked to."""

_CHATTER: Final = re.compile(
    r"#\d+ (?:CACHED|DONE|transferring|naming|writing|building with|\[\S+ internal\])"
    r"|#\d+ extracting|-+$|time=\S+ level=warning msg=.*Bake"
    r"| (?:Container|Network|Volume) \S+ +[A-Z][a-z]+$"
)
"""Lines that tell a user nothing: compose's on each container, BuildKit's book-keeping."""

_CHANGE: Final = re.compile(r"DRY-RUN MODE - .* (?:Recreate|Create|Creating|Removing)$", re.M)

_FILE: Final = "docker-compose.yml"

_LEFT_OUT: Final = frozenset(
    {
        *("COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES", "COMPOSE_ENV_FILES"),
        *("LAB_EXPERIMENT", "LAB_FLAGS"),
    }
)

OLDEST: Final = (2, 19)
"""The first compose that knows the flag `--progress`; all else that is used is older."""


def docker() -> str:
    """The path of the `docker` command.

    Raises:
        LabError: There is none.
    """
    path = shutil.which("docker")
    if path is None:
        raise LabError(
            "there is no docker command",
            "install Docker Engine with its compose plugin, or use `--backend local`",
        )
    return path


def compose_version() -> str:
    """The version of the compose plugin, `2.40.3`.

    Raises:
        LabError: There is no plugin, or one that is too old.
    """
    answer = _capture([docker(), "compose", "version", "--short"])
    version = answer.stdout.strip().removeprefix("v")
    if answer.returncode != 0 or not version:
        raise LabError(
            "docker has no compose plugin",
            "install it, `docker-compose-plugin` or `docker-compose-v2`, or use `--backend local`",
        )
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        raise LabError(
            f"docker compose {visible(version)} is too old",
            "install 2.19 or later, or use `--backend local`",
        )
    return visible(version)


@dataclass(frozen=True, slots=True)
class Compose:
    """`docker compose` for one rendered file.

    Attributes:
        project: The project's name.
        file: The rendered file.
        root: The directory that paths in it start from.
        lock: Descriptor of the lock that compose holds while it works, also where this process is
            killed; None: there is none.
    """

    project: str
    file: Path
    root: Path
    lock: int | None = None

    def build(self, service: str, notify: Notify) -> None:
        """Build the image of a service.

        Raises:
            LabError: It does not build; the fix is named.
        """
        self._run("building the image", ["build", service], notify)

    def up(self, notify: Notify) -> None:
        """Create and start what is missing; returns when anchors are healthy.

        Raises:
            LabError: It did not come up; what was started is still there.
        """
        self._run("booting", ["up", "--detach", "--no-build", "--quiet-pull"], notify)

    def config(self) -> dict[str, Any]:
        """The file as compose understands it, its variables filled in.

        Raises:
            LabError: compose does not understand the file or the variables.
        """
        answer = _capture([*self._command(), "config", "--format", "json"])
        if answer.returncode != 0:
            raise explain("reading the compose file", answer.stderr.splitlines())
        config: dict[str, Any] = json.loads(answer.stdout)
        return config

    def fits(self, services: Sequence[str], variables: Mapping[str, str]) -> bool:
        """Whether compose would change nothing for these services' containers to be as in the file.

        Args:
            services: Each has a container.
            variables: The variables that the file is filled in with.
        """
        command = [*self._command("--dry-run"), "create", "--no-build", *services]
        try:
            answer = _capture(command, variables, TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return False
        changes = _CHANGE.search(f"{answer.stdout}\n{answer.stderr}")
        return answer.returncode == 0 and changes is None

    def _command(self, *options: str) -> list[str]:
        return [
            *(docker(), "compose", "--ansi", "never", "--progress", "plain", *options),
            *("--project-name", self.project),
            *("--file", str(self.file)),
            *("--project-directory", str(self.root)),
        ]

    def _run(self, doing: str, arguments: Sequence[str], notify: Notify) -> None:
        command = [*self._command(), *arguments]
        kept: deque[str] = deque(maxlen=KEPT_LINES)
        with child_process(command, environment=compose_environment(), lock=self.lock) as process:
            for line in lines_of(process):
                kept.append(line)
                if line.strip() and not _CHATTER.match(line):
                    notify(visible(line.strip()))
            if process.wait() != 0:
                raise explain(doing, kept)


def _folder(project: str) -> Path:
    return state_directory() / "compose" / project


def write_compose_file(project: str, text: str) -> Path:
    """Write the file that compose gets, where it is known from any directory; atomically."""
    path = _folder(project) / _FILE
    write_atomically(path, text)
    return path


def remove_compose_file(project: str) -> None:
    """Remove it; it may be gone already."""
    (_folder(project) / _FILE).unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or the user has put something there
        _folder(project).rmdir()


def compose_file(project: str, seen: Sequence[ContainerInfo]) -> str | None:
    """The text of the file that these containers were made from.

    The containers' labels name the file. It may have been edited since. So it counts only where
    compose finds that the containers are as the file describes them.

    Returns:
        None where the file is gone, unreadable or another one.
    """
    origins = {(each.file, each.folder) for each in seen if each.service}
    if len(origins) != 1:
        return None
    file, folder = map(Path, origins.pop())
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    # The variables that the file may have been filled in with, as the containers know them.
    known = {name: value for each in seen for name, value in each.variables.items()}
    variables = {name: known.get(name, "") for name in ("LAB_EXPERIMENT", "LAB_FLAGS")}
    variables["LAB_IMAGE"] = seen[0].image_name
    # Not the service that starts a run: it is no part of the environment.
    services = [each.service for each in seen]
    return text if Compose(project, file, folder).fits(services, variables) else None


@contextmanager
def child_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    lock: int | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """A child process with one pipe for all that it says; it never outlives the block.

    It gets a session of its own, so that Ctrl-C reaches only us and we choose what ends when: it is
    asked to end, and killed when it takes too long or the user does not wait for it.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
        pass_fds=() if lock is None else (lock,),
    )
    with process:  # closes the pipe
        try:
            yield process
        finally:
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.terminate()
                    process.wait(STOP_S)
            finally:
                if process.poll() is None:
                    # All of its session: `docker` starts compose as a child.
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """The child's lines as they come, without their ends."""
    if process.stdout is None:
        raise ValueError("the child has no pipe")
    for line in process.stdout:
        yield line.rstrip("\n")


def _capture(
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=compose_environment() | dict(variables or {}),
        check=False,
        timeout=timeout_s,
    )


def compose_environment() -> dict[str, str]:
    """This process's environment, as compose is to see it.

    What would choose another file or project is left out, and so is what starts an experiment
    without the helper.
    """
    return {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
