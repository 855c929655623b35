"""Resolve the extras and groups of pyproject.toml into `requirements/*.txt`, with hashes.

uv resolves for all platforms and Python versions at once. tools/install.py installs the result.
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
        added: Lines that uv cannot resolve, added as they are.
    """

    extras: tuple[str, ...] | None
    groups: tuple[str, ...]
    like: tuple[str, ...] = ()
    added: str = ""

    def arguments(self) -> list[str]:
        """Return the arguments of `uv pip compile`."""
        if self.extras is None:
            sources = [f"--group=pyproject.toml:{name}" for name in self.groups]
        else:
            sources = ["pyproject.toml", *(f"--extra={name}" for name in self.extras)]
            sources += [f"--group={name}" for name in self.groups]
        return [*sources, *(f"--constraints=requirements/{name}.txt" for name in self.like)]


# PyTorch built for CPUs, with Python 3.11 on x86-64. The index has only its builds for CUDA.
TORCH_CPU = """\
torch==2.13.0+cpu \\
    --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b
"""

HOST = ("report", "simulation")
LOCKS = {
    "uv": Lock(None, ("uv",)),
    "host": Lock(HOST, ("build",)),
    "tensorflow": Lock((*HOST, "tensorflow"), ("build",)),
    "notebooks": Lock((*HOST, "tensorflow", "notebooks"), ("build",)),
    # The host of a class: JupyterHub, which starts a container for each seat.
    "class": Lock((*HOST, "class"), ("build",), ("notebooks",)),
    "dev": Lock(
        (*HOST, "tensorflow", "notebooks", "class", "kubernetes"),
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
    "image-torch-cuda": Lock(None, ("image-torch-cuda",)),
    "image-torch-cpu": Lock(None, ("image-torch-cpu",), ("image-torch-cuda",), TORCH_CPU),
    "image-jax-cpu": Lock(None, ("image-jax-cpu",)),
    "image-jax-cuda": Lock(None, ("image-jax-cuda",), ("image-jax-cpu",)),
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
        file = ROOT / "requirements" / f"{name}.txt"
        command += ["--output-file", str(file), *lock.arguments()]
        subprocess.run(command, cwd=ROOT, check=True)
        with file.open("a") as text:
            text.write(lock.added)


if __name__ == "__main__":
    main()
