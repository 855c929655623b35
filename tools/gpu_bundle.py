"""Download the wheels of `make test-gpu` for a host without a network.

    python tools/gpu_bundle.py FOLDER [--python 3.12] [--all]

The folder gets the locked wheels for Linux on x86-64: TensorFlow with CUDA's libraries, the
packages of `lab`, and pytest. `CONTRIBUTING.md` shows how to copy and install
them. This needs the network, and a Python with pip and packaging, such as that of `.venv`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

LOCKS: Final = Path(__file__).parents[1] / "requirements"
CUDA: Final = ("image-cuda.txt", "host.txt")
TESTS: Final = ("pytest", "pytest-timeout", "pluggy", "iniconfig", "hypothesis", "sortedcontainers")
"""What `tests/gpu` needs beside the packages of `lab`; their versions are in dev.txt."""

UNUSED: Final = ("nvidia-curand-cu12", "nvidia-cuda-nvrtc-cu12", "libclang")
"""Packages that TensorFlow requires and that `make test-gpu` does not load: no random numbers of
CUDA, no code that CUDA compiles, no parser of C."""

_GLIBC: Final = range(5, 40)  # manylinux_2_5 to manylinux_2_39
_ENTRY: Final = re.compile(r"^[^\s#].*(?:\n\s+\S.*)*", re.MULTILINE)
"""An entry of a lock, with its lines of hashes."""


def requirements(python: str, *, everything: bool, locks: Path = LOCKS) -> Iterator[str]:
    """Yield the locked requirements for a Python of Linux on x86-64, each with its hashes.

    Args:
        python: Its version: `3.12`.
        everything: Also those of `UNUSED`.
        locks: The directory of the locks.

    Raises:
        SystemExit: There is no lock with CUDA's libraries.
    """
    target = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    seen = set(() if everything else UNUSED)
    for name in (*CUDA, "dev.txt"):
        if not (locks / name).exists():
            sys.exit(f"error: {locks / name} is missing; run `make lock`")
        for entry in _ENTRY.findall((locks / name).read_text(encoding="utf-8")):
            requirement = Requirement(entry.split("\\")[0].split("--hash")[0].strip())
            if requirement.marker is not None and not requirement.marker.evaluate(target):
                continue
            if requirement.name in seen or (name == "dev.txt" and requirement.name not in TESTS):
                continue
            seen.add(requirement.name)
            hashes = "".join(f" {each}" for each in re.findall(r"--hash=\S+", entry))
            yield f"{requirement.name}{requirement.specifier}{hashes}\n"


def download(folder: Path, python: str, lines: Iterator[str]) -> int:
    """Download the wheels of requirements with pip, and return its exit code."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in reversed(_GLIBC)]
    platforms += ["--platform=manylinux2014_x86_64", "--platform=manylinux2010_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:"]
    command += [f"--python-version={python}", "--implementation=cp", "--abi=abi3", "--abi=none"]
    command += [f"--abi=cp{python.replace('.', '')}", *platforms, "--dest", str(folder)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as lock:
        lock.writelines(lines)
        lock.flush()
        return subprocess.run([*command, "--requirement", lock.name], check=False).returncode


def main() -> None:
    """Download the wheels."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the Python of the other host")
    parser.add_argument("--all", action="store_true", help="also packages that are not loaded")
    given = parser.parse_args()
    lines = requirements(given.python, everything=given.all)
    sys.exit(download(given.folder, given.python, lines))


if __name__ == "__main__":
    main()
