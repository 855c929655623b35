"""The fake library, compiled: once for each set of functions that a driver lacks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.compiling import compile_library
from tests.support.conditions import lacking
from tests.support.engine import NoEngine
from tests.support.nvml.box import Box, lines, load

SOURCE = Path(__file__).with_name("fake_nvml.c")


@dataclass(frozen=True)
class Driver:
    """A host for a process."""

    box: Box
    environment: Mapping[str, str]
    log: Path


def install(box: Box, folder: Path) -> Driver:
    """Compile the library, and write the host's description beside it.

    Args:
        box: The host.
        folder: An empty or shared folder; the library is compiled in it once.

    Raises:
        NoEngine: There is no C compiler and none was requested, or it failed.
    """
    text = lines(box)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    kind = hashlib.sha256(" ".join(sorted(box.missing)).encode()).hexdigest()[:8]
    config, log = folder / f"{name}.txt", folder / f"{name}.log"
    library = folder / f"library-{kind}" / "libnvidia-ml.so.1"
    config.write_text(text)
    if not library.exists():
        # A function by another name is as good as none.
        compile_library(SOURCE, library, *(f"-D{name}=absent_{name}" for name in box.missing))
    environment = {
        "LD_LIBRARY_PATH": str(library.parent),
        "FAKE_NVML": str(config),
        "FAKE_NVML_LOG": str(log),
    }
    return Driver(box, environment, log)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str | Box], Driver]:
    """Gives a host, by the name of its file or as an object, to the processes of a test."""
    folder = tmp_path_factory.mktemp("nvml")

    def have(host: str | Box) -> Driver:
        try:
            return install(load(host) if isinstance(host, str) else host, folder)
        except NoEngine as reason:
            lacking(str(reason))

    return have
