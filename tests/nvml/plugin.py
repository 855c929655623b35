"""The fixture by which tests get a box with GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conditions import lacking
from tests.nvml.box import Box, load
from tests.nvml.library import Driver, NoCompiler, install


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | Box], Driver]:
    """Gives a box, by the name of its file or as it is, to the processes of a test."""
    folder = tmp_path_factory.mktemp("nvml")

    def have(box: str | Box) -> Driver:
        try:
            return install(load(box) if isinstance(box, str) else box, folder)
        except NoCompiler as reason:
            lacking(str(reason))

    return have
