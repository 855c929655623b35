"""`lab build`: the image, with a word beforehand on what is downloaded and how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.backends import Say
from lab.backends.compose.cli import Compose, compose_version
from lab.backends.compose.engine import Engine
from lab.backends.compose.image import Image, image_of, is_here
from lab.plan import Plan
from lab.render.compose import render


@dataclass(frozen=True, slots=True)
class Size:
    """What one choice of TensorFlow costs, measured on x86-64 in November 2026.

    Attributes:
        what: In words.
        download_mb: Megabytes (10⁶ bytes) of wheels.
        image_mb: Megabytes of the whole image.
    """

    what: str
    download_mb: int
    image_mb: int


CPU: Final = Size("TensorFlow for CPUs", 334, 1700)
CUDA: Final = Size("TensorFlow with CUDA's libraries", 3500, 8000)
BASE_MB: Final = 45
"""Megabytes of an official slim Python image, compressed as it is downloaded."""


def build(plan: Plan, *, root: Path, say: Say) -> str:
    """Build the image that a plan's tasks run in.

    Args:
        plan: With GPUs it takes TensorFlow with CUDA, else TensorFlow for CPUs.
        root: The project's directory, with `Dockerfile.gpu`.
        say: Receives what will be downloaded, then progress.

    Returns:
        The image's name.

    Raises:
        LabError: There is no engine with compose, or the image does not build.
    """
    engine = Engine()
    engine.version()
    compose_version()
    with TemporaryDirectory(prefix="lab-build-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(render(plan), encoding="utf-8")
        compose = Compose(plan.name, file, root.absolute())
        image = image_of(compose.config())
        say(announcement(image, has_base=is_here(engine, image.base)))
        compose.build(image.service, say)
    return image.name


def announcement(image: Image, *, has_base: bool) -> str:
    """What a build from nothing downloads, and how large the image becomes; one line."""
    base = f"{image.base} is here" if has_base else f"{image.base} (about {BASE_MB} MB)"
    size = size_of(image.tensorflow)
    if size is None:
        return (
            f"building {image.name}: downloads {base} and {image.tensorflow}, of unknown size;"
            " what an earlier build left is used again"
        )
    return (
        f"building {image.name}: base image {base}; downloads {size.what},"
        f" {image.tensorflow} (about {_size(size.download_mb)}); the image takes"
        f" {_size(size.image_mb)}; what an earlier build left is used again"
    )


def size_of(tensorflow: str) -> Size | None:
    """What a requirement costs; None for one that was never measured."""
    if "and-cuda" in tensorflow:
        return CUDA
    return CPU if tensorflow.startswith("tensorflow-cpu") else None


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"  # noqa: PLR2004
