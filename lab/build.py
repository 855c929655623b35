"""Build the image of a plan's tasks, for `lab build`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from lab.backends import Notify
from lab.backends.compose.cli import Compose, compose_version
from lab.backends.compose.client import Engine
from lab.backends.compose.image_build import build as build_image
from lab.backends.compose.image_build import image_of
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
    engine.version()
    compose_version()
    with TemporaryDirectory(prefix="lab-build-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(render(plan), encoding="utf-8")
        compose = Compose(plan.name, file, root.absolute())
        image = image_of(compose.config())
        build_image(engine, compose, image, plan, root=root.absolute(), notify=notify)
    return image.name
