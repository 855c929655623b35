"""Compiles a library in C for a test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support import engine as engines


def compile_library(source: Path, library: Path, *flags: str) -> None:
    """Compile a shared library; its folder is made. `NoEngine`: there is no C compiler."""
    if shutil.which("gcc") is None:
        if not engines.asked_for():
            raise engines.NoEngine(
                "no C compiler; LAB_TEST_ENGINE=1 installs gcc (needs root, Debian)"
            )
        engines.install("g++")
    library.parent.mkdir(parents=True, exist_ok=True)
    strict = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *strict, *flags, "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise engines.NoEngine(f"{source.name} does not compile:\n{done.stderr[-2000:]}")
