"""What a build of the image downloads, and how large the image becomes: said beforehand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.backends.compose.image import Image


@dataclass(frozen=True, slots=True)
class Size:
    """What one choice of TensorFlow costs, measured on x86-64: docs/evidence/cuda-image.md.

    Attributes:
        what: In words.
        download_mb: Megabytes (10⁶ bytes) of wheels.
        image_mb: Megabytes of the whole image.
    """

    what: str
    download_mb: int
    image_mb: int


CPU: Final = Size("TensorFlow for CPUs", 334, 1690)
CUDA: Final = Size("TensorFlow with CUDA's libraries", 3440, 6720)
BASE_MB: Final = 45
"""Megabytes of an official slim Python image, compressed as it is downloaded."""

COMPILER_MB: Final = 73
"""Megabytes of Debian's packages that Horovod is compiled with; they leave the image again."""


def announcement(image: Image, *, has_base: bool) -> str:
    """What a build from nothing downloads, and how large the image becomes; one line."""
    base = f"base image {image.base}" + (" is here" if has_base else f" (about {BASE_MB} MB)")
    size = size_of(image.tensorflow)
    if size is None:
        parts = [f"{image.tensorflow} (of unknown size)", base]
    else:
        wheels = f"{size.what}, {image.tensorflow} (about {_size(size.download_mb)})"
        parts = [wheels, base, f"the image takes {_size(size.image_mb)}"]
    if image.horovod:
        compiler = f"a compiler for {image.horovod} (about {COMPILER_MB} MB), which works minutes"
        parts.insert(1, compiler)
    return f"building {image.name} downloads {'; '.join(parts)}"


def size_of(tensorflow: str) -> Size | None:
    """What a requirement costs; None for one that was never measured."""
    if "and-cuda" in tensorflow:
        return CUDA
    return CPU if tensorflow.startswith("tensorflow-cpu") else None


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.1f} GB"  # noqa: PLR2004
