"""Compiles a library in C for a test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support import engine as engines


class NoCompiler(Exception):  # noqa: N818
    """The library cannot be compiled; the message has the reason."""


def compile_library(source: Path, library: Path, *flags: str) -> None:
    """Compile a shared library; its folder is made.

    Raises:
        NoCompiler: There is no C compiler and none was requested, or it failed.
    """
    if shutil.which("gcc") is None:
        if not engines.asked_for():
            raise NoCompiler("no C compiler; LAB_TEST_ENGINE=1 installs gcc (needs root, Debian)")
        try:
            engines.install("g++")
        except engines.NoEngine as error:
            raise NoCompiler(str(error)) from None
    library.parent.mkdir(parents=True, exist_ok=True)
    strict = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
    command = ["gcc", *strict, *flags, "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoCompiler(f"{source.name} does not compile:\n{done.stderr[-2000:]}")
