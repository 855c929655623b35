"""Resolve the extras and groups of pyproject.toml into `requirements/*.txt`, with hashes.

uv resolves for all platforms and Python versions at once. pip installs the result.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Lock:
    """What a file in `requirements/` is resolved from.

    Attributes:
        extras: Extras of `gpulab`, beside its own dependencies. None leaves out both.
        groups: Dependency groups.
        like: Files that are resolved before, whose versions this one takes.
    """

    extras: tuple[str, ...] | None
    groups: tuple[str, ...]
    like: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments of `uv pip compile`."""
        if self.extras is None:
            sources = [f"--group=pyproject.toml:{name}" for name in self.groups]
        else:
            sources = ["pyproject.toml", *(f"--extra={name}" for name in self.extras)]
            sources += [f"--group={name}" for name in self.groups]
        return [*sources, *(f"--constraints=requirements/{name}.txt" for name in self.like)]


HOST = ("report", "simulation")
LOCKS = {
    "host": Lock(HOST, ("build",)),
    "tensorflow": Lock((*HOST, "tensorflow"), ("build",)),
    "notebooks": Lock((*HOST, "tensorflow", "notebooks"), ("build",)),
    # The host of a class: JupyterHub, which starts a container for each seat.
    "class": Lock((*HOST, "class"), ("build",), ("notebooks",)),
    "dev": Lock(
        (*HOST, "tensorflow", "notebooks", "class"),
        ("build", "dev"),
        ("class", "notebooks"),
    ),
    # TensorFlow 2.15 does not support Python 3.12 and later.
    "heritage": Lock(None, ("heritage",)),
    # Built and installed after a set with TensorFlow 2.15.
    "horovod-build": Lock(None, ("horovod-build",), ("heritage",)),
    "horovod": Lock(None, ("horovod",), ("heritage",)),
    # What Dockerfile.gpu installs.
    "image-cpu": Lock(None, ("image-cpu",), ("tensorflow",)),
    "image-cuda": Lock(None, ("image-cuda",), ("tensorflow",)),
    "image-heritage-cpu": Lock(None, ("image-heritage-cpu",), ("heritage",)),
    "image-heritage-cuda": Lock(None, ("image-heritage-cuda",), ("heritage",)),
    # What Dockerfile.class adds to `image-cpu` or `image-cuda`, beside the packages of lab.
    "class-image": Lock(
        HOST,
        ("class-image",),
        ("class", "notebooks", "image-cpu", "image-cuda"),
    ),
}


def main() -> None:
    """Write each file of `LOCKS`. The versions in an existing file stay if they still fit."""
    for name, lock in LOCKS.items():
        command = [sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--universal"]
        command += ["--generate-hashes", "--no-header", "--python-version", "3.11"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--no-annotate"]
        command += ["--output-file", f"requirements/{name}.txt", *lock.arguments()]
        subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
