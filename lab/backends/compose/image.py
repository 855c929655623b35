"""The tasks' image: its name and base, whether it fits this lab, its size, and building it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from lab.backends import Say
from lab.backends.compose import sources
from lab.backends.compose.cli import Compose
from lab.backends.compose.engine import Engine, answering
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.render import compose as render
from lab.task.sources import PACKAGE, digest
from lab.task.text import short, visible
from lab.tf_versions import IMAGES


@dataclass(frozen=True, slots=True)
class Image:
    """What the tasks run in.

    Attributes:
        service: The first service that builds it.
        name: `lab:cpu`.
        base: The image that it is built on, `python:3.11-slim-bookworm`.
        tensorflow: What pip installs, `tensorflow-cpu==2.21.*`.
        horovod: What pip compiles, `horovod==0.28.1`, or "".
    """

    service: str
    name: str
    base: str
    tensorflow: str
    horovod: str = ""


def image_of(config: dict[str, Any]) -> Image:
    """The image in compose's own reading of a rendered file.

    Raises:
        ValueError: No service builds one.
    """
    for name, service in config["services"].items():
        if "build" in service:
            arguments = service["build"]["args"]
            return Image(
                name,
                service["image"],
                arguments["BASE_IMAGE"],
                arguments["TENSORFLOW"],
                arguments.get("HOROVOD", ""),
            )
    raise ValueError("no service of the rendered file builds an image")


def is_here(engine: Engine, name: str) -> bool:
    """Whether the engine holds an image of this name.

    Raises:
        LabError: The engine does not answer.
    """
    with answering("looking for the image"):
        return bool(engine.client().images.list(name=name))


def can_be_fetched(engine: Engine, name: str) -> bool:
    """Whether a registry that the engine reaches has an image of this name."""
    try:
        with answering("asking the registry"):
            engine.client().images.get_registry_data(name)
    except LabError:
        return False
    return True


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


class Standing(Enum):
    """How an image stands to this lab."""

    MISSING = auto()
    OLD = auto()
    """It holds another version of the code that runs beside the programs."""
    FITS = auto()


def standing(engine: Engine, image: Image, plan: Plan) -> Standing:
    """Whether the image is here and holds the code that this lab speaks to.

    Args:
        engine: The engine.
        image: What the plan's rendered file asks for.
        plan: The plan.

    Raises:
        LabError: The engine does not answer, or the image does not fit and is one that the user
            has named. That is never replaced unasked: there may be more in it than lab's own.
    """
    if not is_here(engine, image.name):
        return Standing.MISSING
    if sources.of_image(engine, image.name, plan.name) == digest():
        return Standing.FITS
    own = render.image_of(plan)
    if image.name != own:
        variable = f"{IMAGES[plan.tensorflow].variable}_IMAGE"
        raise LabError(
            f"the image {short(image.name)} ({variable}) holds another version of lab/task than"
            " this lab",
            f"run `lab build` again if that made it; if you built it on {own}, run"
            f" `{variable}= lab build` and then your own build",
        )
    return Standing.OLD


def old(image: Image) -> str:
    """What is said of an image that is built again because it is old."""
    return f"the image {image.name} holds another version of lab/task than this lab"


def build(
    engine: Engine, compose: Compose, image: Image, plan: Plan, *, root: Path, say: Say
) -> None:
    """Build an image, and see that it holds the code that this lab speaks to.

    Args:
        engine: The engine.
        compose: The rendered file.
        image: What that asks for.
        plan: The plan.
        root: The project's directory, with `Dockerfile.gpu`.
        say: Receives what will be downloaded, then progress.

    Raises:
        LabError: It does not build, or the project's folder has another version of lab.
    """
    say(announcement(image, has_base=is_here(engine, image.base)))
    compose.build(image.service, say)
    if sources.of_image(engine, image.name, plan.name) != digest():
        raise LabError(
            f"the image {short(image.name)} was built from another version of lab/task,"
            f" {visible(str(root / 'lab' / 'task'))}, than this lab has,"
            f" {visible(str(PACKAGE / 'task'))}",
            "run the lab of that folder, or bring both to one version",
        )
