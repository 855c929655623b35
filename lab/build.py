"""Build the image of a plan's tasks, for `lab build`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.backends.compose import image_build as images
from lab.backends.compose.cli import Compose, compose_version
from lab.backends.engine.client import Engine
from lab.errors import Notify
from lab.placement.plan import Plan
from lab.render.compose import render


def build(plan: Plan, *, root: Path, notify: Notify) -> str:
    """Build the image that a plan's tasks run in.

    Args:
        plan: The plan. With GPUs, the image has TensorFlow for CUDA, else TensorFlow for CPUs.
        root: The project's directory, with `Dockerfile.gpu`.
        notify: Receives what will be downloaded and its size, then the progress.

    Returns:
        The image's name.

    Raises:
        LabError: There is no engine with compose, the build fails, or the project's directory has
            another version of lab than the one that runs.
    """
    engine = Engine()
    with _compose(engine, plan, root) as (compose, image):
        images.build(engine, compose, image, plan, root=root.absolute(), notify=notify)
    return image.name


def ensure(plan: Plan, *, root: Path, notify: Notify) -> str:
    """Build the image of a plan's tasks, unless it is here with this version of lab's code.

    See `build` for the arguments.

    Returns:
        The image's name.

    Raises:
        LabError: As `build`; or the user named an image with another version.
    """
    engine = Engine()
    with _compose(engine, plan, root) as (compose, image):
        images.ensure(engine, compose, image, plan, root=root.absolute(), notify=notify)
    return image.name


@contextmanager
def _compose(engine: Engine, plan: Plan, root: Path) -> Iterator[tuple[Compose, images.Image]]:
    """Yield compose with the plan's rendered file, and the image of that file."""
    engine.version()
    compose_version()
    with TemporaryDirectory(prefix="lab-build-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(render(plan), encoding="utf-8")
        compose = Compose(plan.name, file, root.absolute())
        yield compose, images.image_of(compose.config())
