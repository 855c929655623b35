"""The `docker compose` command, run as a child process whose output is shown while it runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.backends.engine.containers import ContainerInfo
from lab.backends.engine.error_hints import INSTALL_COMPOSE, explain
from lab.backends.state import state_directory
from lab.base.errors import LabError
from lab.base.log import LOG
from lab.base.text import visible
from lab.protocol.volume.files import write_atomically

KEPT_LINES: Final = 200
"""The number of a child's last lines that are kept to explain its failure."""

SHOWN_LINES: Final = 20
"""The number of a failed build's last lines that are shown."""

STOP_S: Final = 10.0
"""Seconds that a child has to end after SIGTERM."""

_CHATTER: Final = re.compile(r" (?:(?:Container|Network|Volume|Image) )?\S+ +[A-Z][a-z]+ *$")
"""Lines of a boot that are not shown: compose's line for each container."""

_LONG_STEP: Final = re.compile(
    r"(?:#\d+ \[(?:\S+ )? *|Step )(\d+)/(\d+)(?:\]| :) (?:FROM|RUN) |#\d+ exporting layers"
)
"""The beginning of a build's step that may take minutes, by BuildKit or by the classic builder."""

_FILE: Final = "docker-compose.yml"

_DROPPED: Final = frozenset(
    {"COMPOSE_FILE", "COMPOSE_PROJECT_NAME", "COMPOSE_PROFILES", "COMPOSE_ENV_FILES"}
)

OLDEST: Final = (2, 19)
"""The first compose with the flag `--progress`, the newest feature that is used here."""


def docker() -> str:
    """Return the path of the `docker` command.

    Raises:
        LabError: There is no such command.
    """
    path = shutil.which("docker")
    if path is None:
        raise LabError(
            "the command `docker` is missing",
            "install Docker Engine with its compose plugin, or use `--backend local`",
        )
    return path


def compose_version() -> str:
    """Return the version of the compose plugin, `2.40.3`.

    Raises:
        LabError: The plugin is missing or too old.
    """
    answer = _capture([docker(), "compose", "version", "--short"])
    version = answer.stdout.strip().removeprefix("v")
    if answer.returncode != 0 or not version:
        raise LabError("docker has no compose plugin", INSTALL_COMPOSE)
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers < OLDEST:
        raise LabError(
            f"docker compose {version} is too old",
            "install 2.19 or later, or use `--backend local`",
        )
    return visible(version)


@dataclass(frozen=True, slots=True)
class Compose:
    """`docker compose` for one rendered file.

    Attributes:
        project: The project's name.
        file: The rendered file.
        root: The directory of relative paths in the file.
        lock: Descriptor of a lock. compose inherits it, so that the lock is held until compose
            ends, even if this process is killed. None: no lock.
    """

    project: str
    file: Path
    root: Path
    lock: int | None = None

    def build(self, service: str, **arguments: str) -> None:
        """Build the image of a service, with one line for each long step.

        Args:
            service: The service.
            **arguments: Arguments of the Dockerfile, beside those in the compose file.

        Raises:
            LabError: The build failed; its last lines are shown.
        """
        more = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        self._run("building the image", ["build", *more, service], steps=True)

    def up(self, *services: str) -> None:
        """Create and start missing containers; return when the anchors are healthy.

        Args:
            *services: Only these, without waiting for their health; none: all.

        Raises:
            LabError: It failed; the started containers are still there.
        """
        self._run("booting", ["up", "--detach", "--no-build", "--quiet-pull", *services])

    def config(self) -> dict[str, Any]:
        """Return the file as compose reads it, with its variables replaced.

        Raises:
            LabError: compose cannot read the file or its variables.
        """
        answer = _capture([*self.command(), "config", "--format", "json"])
        if answer.returncode != 0:
            raise explain("reading the compose file", answer.stderr.splitlines())
        config: dict[str, Any] = json.loads(answer.stdout)
        return config

    def command(self) -> list[str]:
        """Return the beginning of its command line."""
        return [
            *(docker(), "compose", "--ansi", "never", "--progress", "plain"),
            *("--project-name", self.project),
            *("--file", str(self.file)),
            *("--project-directory", str(self.root)),
        ]

    def _run(self, doing: str, arguments: Sequence[str], *, steps: bool = False) -> None:
        """Run compose; show its lines without chatter, or only the long steps of a build."""
        command = [*self.command(), *arguments]
        tail: deque[str] = deque(maxlen=KEPT_LINES)
        last = ""
        with child_process(command, lock=self.lock) as process:
            for line in lines_of(process):
                tail.append(line)
                if steps:
                    step = _step(line)
                    if step not in {"", last}:  # BuildKit repeats a step's first line
                        LOG.info(f"{doing}: {step}")
                    last = step or last
                elif line.strip() and not _CHATTER.match(line):
                    LOG.info(line.strip())
            if process.wait() != 0:
                for line in list(tail)[-SHOWN_LINES:] if steps else ():
                    LOG.warning(line.strip())
                raise explain(doing, tail)


def _step(line: str) -> str:
    """The long step of a build that begins with this line, `step 3 of 12`, or ""."""
    match = _LONG_STEP.match(line)
    if match is None:
        return ""
    return f"step {match[1]} of {match[2]}" if match[1] else "writing it"


def _folder(project: str) -> Path:
    return state_directory() / "compose" / project


def write_compose_file(project: str, text: str) -> Path:
    """Write the compose file atomically to the state directory; return its path."""
    path = _folder(project) / _FILE
    write_atomically(path, text)
    return path


def remove_compose_file(project: str) -> None:
    """Remove the compose file, if it is there."""
    (_folder(project) / _FILE).unlink(missing_ok=True)
    with suppress(OSError):  # the directory is missing, or the user put files there
        _folder(project).rmdir()


def compose_file(infos: Sequence[ContainerInfo]) -> str | None:
    """Return the text of the compose file that these containers were made from, as it is now.

    The containers' labels name the file.

    Returns:
        None if the file is missing or unreadable, or belongs to another config now.
    """
    origins = {(info.file, info.cluster_sha256) for info in infos if info.service}
    if len(origins) != 1:
        return None
    file, cluster_sha256 = origins.pop()
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return text if cluster_sha256 in text else None


@contextmanager
def child_process(
    command: Sequence[str], *, lock: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run a child process with one pipe for all its output; it ends with the block at the latest.

    The child has its own session, so that Ctrl-C reaches only this process. At the end of the block
    the child gets SIGTERM. It gets SIGKILL if it takes too long, or if the user does not wait.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=compose_environment(),
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
                    # Kill the whole group: `docker` starts compose as a child.
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the child's lines as it prints them, without line ends."""
    if process.stdout is None:
        raise ValueError("the child has no pipe")
    for line in process.stdout:
        yield line.rstrip("\n")


def _capture(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=compose_environment(),
        check=False,
    )


def compose_environment() -> dict[str, str]:
    """Return this process's environment variables, without those that name another file."""
    return {name: value for name, value in os.environ.items() if name not in _DROPPED}
