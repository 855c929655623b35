"""Options of the unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import Crew
from tests.support.cli import Cli, host, project  # noqa: F401  (fixtures)
from tests.support.packages import install  # noqa: F401

# Before NumPy is imported: its threads wait actively for each other, and the cores are already busy
# with the other processes of the tests. Small matrices would take 25 times as long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True, scope="module")
def _apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unit tests leave the user's state and engine alone, and import TensorFlow nowhere."""
    with pytest.MonkeyPatch.context() as variables:
        variables.setenv("LAB_LOCAL", "namespaces")
        variables.setenv("LAB_STATE", str(tmp_path_factory.mktemp("state")))
        variables.setenv("DOCKER_HOST", "unix:///no-engine.sock")
        variables.delenv("LAB_RUNS_DIR", raising=False)
        yield


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capfd)


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    crew = Crew(tmp_path)
    yield crew
    crew.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the files in tests/golden anew"
    )
