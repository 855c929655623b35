"""The fixture that gives tests a host with GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conditions import lacking
from tests.nvml.box import Box, load
from tests.nvml.library import Driver, NoCompiler, install


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | Box], Driver]:
    """Gives a host, by the name of its file or as an object, to the processes of a test."""
    folder = tmp_path_factory.mktemp("nvml")

    def have(host: str | Box) -> Driver:
        try:
            return install(load(host) if isinstance(host, str) else host, folder)
        except NoCompiler as reason:
            lacking(str(reason))

    return have
