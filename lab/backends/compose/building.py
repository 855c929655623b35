"""Whether the tasks' image is as this lab needs it, and building it where it is not."""

from __future__ import annotations

from enum import Enum, auto
from pathlib import Path

from lab.backends import Say
from lab.backends.compose import sources
from lab.backends.compose.cli import Compose
from lab.backends.compose.downloads import announcement
from lab.backends.compose.engine import Engine
from lab.backends.compose.image import Image, is_here
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.render import compose as rendering
from lab.task.sources import PACKAGE, digest
from lab.task.text import short, visible
from lab.tf_versions import IMAGES


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
    own = rendering.image_of(plan)
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
