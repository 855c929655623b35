"""The fake library, compiled: once for each set of functions that a driver lacks."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests import engine as engines
from tests.nvml.box import Box, lines

SOURCE = Path(__file__).with_name("fake_nvml.c")
PACKAGES = ("gcc", "libc6-dev")
HINT = "LAB_TEST_ENGINE=1 installs gcc (needs root, Debian or Ubuntu)"


class NoCompiler(Exception):  # noqa: N818
    """The library cannot be compiled; the message has the reason."""


@dataclass(frozen=True)
class Driver:
    """A host for a process.

    Attributes:
        box: Its parts.
        environment: The variables with which pynvml finds it.
        log: A line for each time that the library was opened or closed.
    """

    box: Box
    environment: Mapping[str, str]
    log: Path


def install(box: Box, folder: Path) -> Driver:
    """Compile the library, and write the host's description beside it.

    Args:
        box: The host.
        folder: An empty or shared folder; the library is compiled in it once.

    Raises:
        NoCompiler: There is no C compiler and none was requested, or it failed.
    """
    text = lines(box)
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    config, log = folder / f"{name}.txt", folder / f"{name}.log"
    config.write_text(text)
    environment = {
        "LD_LIBRARY_PATH": str(compiled(box.missing, folder).parent),
        "FAKE_NVML": str(config),
        "FAKE_NVML_LOG": str(log),
    }
    return Driver(box, environment, log)


def compiled(missing: tuple[str, ...], folder: Path) -> Path:
    """The library without these functions."""
    kind = hashlib.sha256(" ".join(sorted(missing)).encode()).hexdigest()[:8]
    library = folder / f"library-{kind}" / "libnvidia-ml.so.1"
    if library.exists():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    # A function by another name is as good as none.
    renamed = [f"-D{name}=absent_{name}" for name in missing]
    strict = ["-Wall", "-Wextra", "-Werror"]
    flags = ["-shared", "-fPIC", "-O1", *strict, *renamed]
    command: list[str | Path] = [_compiler(), *flags, "-o", library, SOURCE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoCompiler(f"the fake NVML library does not compile:\n{done.stderr[-2000:]}")
    return library


def _compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None and engines.asked_for():
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            engines.run(["apt-get", "update", "-q"], environment=quiet)
            install = ["apt-get", "install", "-qy", "--no-install-recommends"]
            engines.run([*install, *PACKAGES], environment=quiet)
        except (engines.NoEngine, OSError) as error:
            raise NoCompiler(f"no C compiler can be installed: {error}") from None
        found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        raise NoCompiler(f"no C compiler for the fake NVML library; {HINT}")
    return found
