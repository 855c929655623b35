"""Checks of the tasks' image, and of what compose builds it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.doctor.commands import run_command
from lab.doctor.data import inspect_directory
from lab.doctor.engine import ASK_S, RESTART, EngineInfo, numbers
from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.shipped import BASE_IMAGE_TOOL
from lab.text import short

_COMPOSE_WITHOUT_BUILDER: Final = (5,)

REGISTRY_S: Final = 20.0

ROOM_BYTES: Final = 10**9
"""Free bytes needed in addition to the image: for logs, models and build files."""


@dataclass(frozen=True, slots=True)
class TaskImage:
    """The image of the config's tasks.

    Attributes:
        name: `lab:cpu`.
        base: Its base image.
        size_bytes: Its approximate size, or None if it is not known.
        is_here: Whether the engine has it.
        is_old: Whether the engine has it, but with another version of lab's code than the host.
        base_state: `exists`, `can be downloaded` from a registry, or "".
    """

    name: str
    base: str
    size_bytes: int | None
    is_here: bool
    is_old: bool = False
    base_state: str = ""


def buildx_version() -> str:
    """Return the version of docker's plugin buildx, `0.29.1`, or "" if docker has no such plugin.

    Raises:
        LabError: Compose refuses the plugin.
    """
    from lab.backends.compose import cli  # noqa: PLC0415

    cli.require_builder()
    found = run_command(("docker", "buildx", "version"), ASK_S)
    # It prints `github.com/docker/buildx v0.29.1 COMMIT`.
    version = found.out.split()[1:2] if found.code == 0 else []
    return short(version[0].removeprefix("v")) if version else ""


def disk(engine_info: EngineInfo) -> tuple[Path, int] | None:
    """Return the directory of the engine's images, and its free bytes; None on another host."""
    if not engine_info.is_local:
        return None
    directory = inspect_directory(engine_info.images_directory, "images", "")
    return directory.existing, directory.free


def judge_buildx(
    buildx_version: str,
    compose_version: str,
    engine_info: EngineInfo,
    environ: Mapping[str, str],
) -> Outcome:
    """Report how compose builds images.

    Args:
        buildx_version: The version of docker's plugin buildx; "" without the plugin.
        compose_version: The version of compose.
        engine_info: What the engine reports.
        environ: The environment variables.
    """
    if engine_info.is_podman and environ.get("DOCKER_BUILDKIT") != "0":
        return warning(
            "compose builds in a BuildKit container of Docker Hub, because this engine is Podman",
            "let Podman build: `export DOCKER_BUILDKIT=0`",
        )
    if buildx_version:
        return ok(buildx_version)
    if numbers(compose_version) < _COMPOSE_WITHOUT_BUILDER:
        return ok(f"not installed; compose {compose_version} has a builder of its own")
    return warning(
        f"not installed: compose {compose_version} builds with the engine's classic builder, which "
        "is deprecated",
        "install `docker-buildx-plugin` from Docker's repository",
    )


def judge_no_builder(error: LabError | OSError, known_image: TaskImage | None) -> Outcome:
    """Report that compose refuses to build; this matters if the image must be built.

    Args:
        error: The refusal.
        known_image: The image of the tasks, if it is known.
    """
    if not isinstance(error, LabError):
        return warning("compose does not answer", RESTART)
    what = error.what.removeprefix("building an image: ")
    if known_image is not None and (known_image.is_old or not known_image.is_here):
        return failed(what, error.fix, "buildx is too old")
    return warning(what, error.fix)


def find_image(plan: Plan) -> TaskImage:
    """Find the plan's image, and whether it exists or can be built.

    Raises:
        LabError: The engine does not answer, compose rejects the file, or the image that the user
            has set does not fit this version of lab.
    """
    from lab.backends.compose.image_build import (  # noqa: PLC0415
        ImageStatus,
        image_builder,
        size_of,
    )
    from lab.backends.engine.client import Engine  # noqa: PLC0415

    with image_builder(Engine(), plan, Path.cwd()) as builder:
        image, found = builder.image, builder.status()
        base_state = "" if found is ImageStatus.FITS else builder.base_state()
    size = size_of(image)
    size_bytes = size.image_mb * 10**6 if size is not None and size.image_mb else None
    exists, is_old = found is not ImageStatus.MISSING, found is ImageStatus.OLD
    return TaskImage(image.name, image.base, size_bytes, exists, is_old, base_state)


def judge_image(image: TaskImage) -> Outcome:
    """Check that the tasks' image exists, or can be built."""
    name, base = short(image.name), short(image.base)
    if image.is_here and not image.is_old:
        return ok(f"{name} exists")
    state, builds = f"{name} is not built yet", "builds it"
    if image.is_old:
        state, builds = f"{name} has another version of lab's code", "builds it again"
    if image.base_state:
        return ok(f"{state}; its base {base} {image.base_state}, and the first run {builds}")
    return failed(
        f"{state}, and its base {base} cannot be downloaded",
        f"build a base with `{BASE_IMAGE_TOOL}`, then `export LAB_BASE_IMAGE=lab-base:bookworm`",
        "no image",
    )


def judge_no_image(error: LabError | OSError) -> Outcome:
    """Report why the tasks' image is not known."""
    if isinstance(error, LabError):
        return failed(error.what, error.fix, "no image")
    return warning(
        "the image is not built, and the registry does not answer",
        f"build a base with `{BASE_IMAGE_TOOL}`, then `export LAB_BASE_IMAGE=lab-base:bookworm`",
    )


def judge_disk(engine_disk: tuple[Path, int] | None, known_image: TaskImage | None) -> Outcome:
    """Check that the image fits on the engine's disk.

    Args:
        engine_disk: The directory of the engine's images, and its free bytes; None if the engine
            runs on another host.
        known_image: The image of the tasks, if it is known.
    """
    if engine_disk is None:
        return skipped("the engine runs on another host")
    where, free = engine_disk
    what = f"{_gb(free)} free in {where}"
    fix = "free some space with `docker image prune` and `docker builder prune`"
    missing = known_image is not None and not known_image.is_here
    size = (known_image.size_bytes or 0) if known_image is not None and missing else 0
    if free >= size + ROOM_BYTES:
        return ok(f"{what}; the image needs {_gb(size)}" if size else what)
    if missing:
        what = f"{what}, but the image and its containers need {_gb(size + ROOM_BYTES)}"
        return failed(what, fix, "no space for the image")
    return warning(what, fix)


def _gb(size: int) -> str:
    return f"{size / 10**9:.1f} GB"
