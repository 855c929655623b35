"""The harness's own Docker engine, which it may restart without an effect on another one.

It runs in its own network namespace, so that its bridges and packet filters affect no other; its
image comes from the engine that answers, through a pipe.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support import engine as engines


class OwnEngine:
    """An engine with all its state in one directory, and the variables by which it is found."""

    def __init__(self, home: Path, environ: Mapping[str, str]) -> None:
        self.home = home
        self.url = f"unix://{home}/docker.sock"
        self.environ = {**environ, "DOCKER_HOST": self.url}
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        # Files of a killed engine would prevent the next start.
        (self.home / "pid").unlink(missing_ok=True)
        self._daemon = engines.start(self.home, self.environ, "unshare", "--net")

    def stop(self) -> None:
        """Stop it with all its containers, as an upgrade of its package does."""
        engines.stop(self._daemon)

    def restart(self) -> None:
        """Stop it and start it again."""
        self.stop()
        self.start()


@contextmanager
def own_engine(image: str, environ: Mapping[str, str]) -> Iterator[OwnEngine]:
    """An engine with this image, for as long as the block lasts.

    Args:
        image: An image of the engine that answers.
        environ: The variables by which `docker` finds that one, and finds compose.

    Raises:
        engines.NoEngine: It does not start, or cannot have the image.
    """
    home = Path(tempfile.mkdtemp(prefix="lab-torture-", dir="/var/tmp"))
    with ExitStack() as stack:
        stack.callback(engines.wipe, home)
        found = OwnEngine(home, environ)
        stack.callback(found.stop)
        with subprocess.Popen(
            ["docker", "save", image], env=dict(environ), stdout=subprocess.PIPE
        ) as saving:
            engines.run(["docker", "load"], environment=found.environ, stdin=saving.stdout)
        if saving.returncode:
            raise engines.NoEngine(f"{image} cannot be copied")
        yield found
