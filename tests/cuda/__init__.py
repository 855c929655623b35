"""A CUDA driver without a GPU, `libcuda.so.1`, compiled from `libcuda.c`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("libcuda.c")


def build(folder: Path, *, old: bool = False) -> Path:
    """Compile the library into a folder, for LD_LIBRARY_PATH.

    Args:
        folder: Where; it is made.
        old: Without the functions that drivers before 11.4 had not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-DOLD"] if old else []
    output = folder / "libcuda.so.1"
    compiler = shutil.which("cc") or "gcc"
    command = [compiler, "-shared", "-fPIC", "-D_GNU_SOURCE", "-Wall", "-Werror", *flags]
    subprocess.run([*command, "-o", output, SOURCE], check=True)
    return folder


def variables(folder: Path, uuids: Sequence[str]) -> dict[str, str]:
    """The environment in which the library is found and shows these GPUs."""
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_CUDA": ",".join(uuids)}
