"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import engine as engines

CPU_TENSORFLOW = "tensorflow-cpu==2.21.*"
DEFAULT_BASE = "python:3.11-slim-bookworm"


@pytest.fixture(scope="session")
def session_environment() -> Iterator[pytest.MonkeyPatch]:
    """Variables that hold for all tests of the session."""
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="session")
def engine(session_environment: pytest.MonkeyPatch) -> Iterator[engines.Engine]:
    """A Docker engine that answers, known to every test and child by its variables."""
    try:
        with engines.an_engine() as found:
            for name in ("DOCKER_HOST", "DOCKER_CONFIG", "PATH"):
                if name in found.environment:
                    session_environment.setenv(name, found.environment[name])
            yield found
    except engines.NoEngine as reason:
        pytest.skip(str(reason))
