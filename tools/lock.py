"""Resolve the dependencies of `pyproject.toml` into `requirements/*.txt`, with hashes.

uv resolves for all platforms and Python versions at once; pip, which every machine has, installs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SETS = {"host": (), "tensorflow": ("tensorflow",), "dev": ("tensorflow", "dev")}


def main() -> None:
    """Write one file for each set."""
    for name, extras in SETS.items():
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--generate-hashes", "--no-header", "--python-version", "3.11"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate"]
        command += [f"--extra={extra}" for extra in extras]
        command += ["--output-file", f"requirements/{name}.txt"]
        command += ["requirements/build.in", "pyproject.toml"]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
