"""Resolve the dependencies into `requirements/*.txt`, with hashes.

uv resolves for all platforms and Python versions at once. pip installs the result.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def _like(name: str) -> tuple[str, str]:
    """The option that takes the versions of another set, which is resolved before."""
    return ("--constraints", f"requirements/{name}.txt")


PROJECT = ("requirements/build.in", "pyproject.toml")
SETS = {
    "host": PROJECT,
    "tensorflow": (*PROJECT, "--extra=tensorflow"),
    "notebooks": (*PROJECT, "--extra=tensorflow", "--extra=notebooks"),
    # The host of a class: JupyterHub, which starts a container for each seat.
    "class": (*PROJECT, "--extra=class", *_like("notebooks")),
    # Beside `notebooks` and `class`, for a class without Docker: Node.js, which runs the proxy.
    "class-local": ("requirements/class-local.in",),
    "dev": (
        *(*PROJECT, "requirements/class-local.in", "--extra=tensorflow", "--extra=notebooks"),
        *("--extra=class", "--extra=dev"),
        *(*_like("class"), *_like("class-local"), *_like("notebooks")),
    ),
    # TensorFlow 2.15 does not support Python 3.12 and later.
    "heritage": ("requirements/heritage.in",),
    # Built and installed after a set with TensorFlow 2.15.
    "horovod-build": ("requirements/horovod-build.in", *_like("heritage")),
    "horovod": ("requirements/horovod.in", *_like("heritage")),
    # What `Dockerfile.gpu` installs.
    "image-cpu": ("requirements/image-cpu.in", *_like("tensorflow")),
    "image-cuda": ("requirements/image-cuda.in", *_like("tensorflow")),
    "image-heritage-cpu": ("requirements/image-heritage-cpu.in", *_like("heritage")),
    "image-heritage-cuda": ("requirements/image-heritage-cuda.in", *_like("heritage")),
    # What `Dockerfile.class` adds to `image-cpu` or `image-cuda`.
    "class-image": (
        *("requirements/class-image.in", *PROJECT),
        *(
            *_like("class"),
            *_like("class-local"),
            *_like("notebooks"),
            *_like("image-cpu"),
            *_like("image-cuda"),
        ),
    ),
}


def main() -> None:
    """Write one requirements file for each set."""
    for name, sources in SETS.items():
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--generate-hashes", "--no-header", "--python-version", "3.11"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate"]
        command += ["--output-file", f"requirements/{name}.txt", *sources]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
