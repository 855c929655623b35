"""Resolve the dependencies into `requirements/*.txt`, with hashes.

uv resolves for all platforms and Python versions at once; pip, which every machine has, installs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OURS = ("requirements/build.in", "pyproject.toml")
SETS = {
    "host": OURS,
    "tensorflow": (*OURS, "--extra=tensorflow"),
    "notebooks": (*OURS, "--extra=tensorflow", "--extra=notebooks"),
    "dev": (*OURS, "--extra=tensorflow", "--extra=dev"),
    # Its TensorFlow knows no Python beyond 3.11.
    "heritage": ("requirements/heritage.in",),
    # Built on what is there then; what it needs stands in the set above.
    "horovod": ("requirements/horovod.in", "--no-deps"),
}


def main() -> None:
    """Write one file for each set."""
    for name, sources in SETS.items():
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--generate-hashes", "--no-header", "--python-version", "3.11"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate"]
        command += ["--output-file", f"requirements/{name}.txt", *sources]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
