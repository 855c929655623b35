"""The harness's own Docker engine, which it may restart without an effect on another one.

It runs in its own network namespace, so that its bridges and packet filters affect no other; its
image comes from the engine that answers, through a pipe.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests import engine as engines

_START_S: Final = 60.0


class EngineError(Exception):
    """It could not be started; the message has its last output."""


@dataclass(slots=True)
class OwnEngine:
    """An engine with all its state in one directory.

    Attributes:
        home: That directory.
        environ: The variables by which `docker` and docker-py find it.
    """

    home: Path
    environ: Mapping[str, str]
    _daemon: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"unix://{self.home}/docker.sock"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            EngineError: It does not.
        """
        (self.home / "daemon.json").write_text("{}", encoding="utf-8")
        # Files of a killed engine would prevent the next start.
        (self.home / "pid").unlink(missing_ok=True)
        with (self.home / "log").open("ab") as log:
            self._daemon = subprocess.Popen(
                [
                    *("unshare", "--net", "setpriv", "--pdeathsig", "TERM", "dockerd"),
                    *("--config-file", str(self.home / "daemon.json")),
                    *("--data-root", str(self.home / "data")),
                    *("--exec-root", str(self.home / "exec")),
                    *("--pidfile", str(self.home / "pid")),
                    *("--host", self.url),
                ],
                env={**os.environ, "PATH": engines.system_path()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + _START_S
        while not engines.answers(self.environ):
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                output = (self.home / "log").read_text(errors="replace")[-2000:]
                raise EngineError(f"dockerd does not answer:\n{output}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop it with all its containers, as an upgrade of its package does."""
        if self._daemon is not None:
            engines.stop(self._daemon)
            self._daemon = None

    def restart(self) -> None:
        """Stop it and start it again.

        Raises:
            EngineError: It does not start again.
        """
        self.stop()
        self.start()


@contextmanager
def own_engine(image: str, environ: Mapping[str, str]) -> Iterator[OwnEngine]:
    """An engine with this image, for as long as the block lasts.

    Args:
        image: An image of the engine that answers.
        environ: The variables by which `docker` finds that one, and finds compose.

    Raises:
        EngineError: It does not start, or cannot have the image.
    """
    home = Path(tempfile.mkdtemp(prefix="lab-torture-engine-", dir="/var/tmp"))
    found = OwnEngine(home, {**environ, "DOCKER_HOST": f"unix://{home}/docker.sock"})
    try:
        found.start()
        _copy(image, environ, found.environ)
        yield found
    finally:
        found.stop()
        _wipe(home)


def _copy(image: str, source: Mapping[str, str], sink: Mapping[str, str]) -> None:
    """Hand an image from one engine to another."""
    with subprocess.Popen(
        ["docker", "save", image], env=dict(source), stdout=subprocess.PIPE
    ) as saving:
        loaded = subprocess.run(
            ["docker", "load", "--quiet"],
            env=dict(sink),
            stdin=saving.stdout,
            capture_output=True,
            text=True,
            check=False,
        )
    if saving.returncode or loaded.returncode:
        raise EngineError(f"{image} cannot be copied: {loaded.stderr.strip()[-500:]}")


def _wipe(home: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{home}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
    with suppress(FileNotFoundError):
        shutil.rmtree(home)
