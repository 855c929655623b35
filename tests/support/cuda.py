"""A CUDA driver without a GPU, `libcuda.so.1`, compiled from `libcuda.c`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.support.compiling import compile_library


def build(folder: Path, *, old: bool = False) -> Path:
    """Compile the library into a folder, for LD_LIBRARY_PATH.

    Args:
        folder: Where; it is made.
        old: Without the functions that drivers before 11.4 had not.
    """
    source = Path(__file__).with_name("libcuda.c")
    compile_library(source, folder / "libcuda.so.1", *["-DOLD"] * old)
    return folder


def variables(folder: Path, uuids: Sequence[str]) -> dict[str, str]:
    """The environment in which the library is found and shows these GPUs."""
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA": ",".join(uuids)}
