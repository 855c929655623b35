"""A CUDA driver without a GPU, `libcuda.so.1`, compiled from `libcuda.c`."""

from __future__ import annotations

from pathlib import Path

from tests.support.compiling import compile_library


def build(folder: Path) -> Path:
    compile_library(Path(__file__).with_name("libcuda.c"), folder / "libcuda.so.1")
    return folder
