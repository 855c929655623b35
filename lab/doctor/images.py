"""The tasks' image: whether it is here, can be built, and fits on the engine's disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.doctor.engine import AREA, Answers
from lab.doctor.model import Finding, Need, Verdict
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.task.text import short

ROOM_BYTES: Final = 10**9
"""What must be left beside the image: containers' logs, models, the build's own files."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The image that the description's tasks run in.

    Attributes:
        name: `lab:cpu`.
        base: What it is built on.
        size_bytes: About how large it becomes, or None where nobody has measured it.
        is_here: Whether the engine has it.
        base_is_here: Whether the engine has its base.
        base_can_be_fetched: Whether a registry that the engine reaches has its base.
        is_old: Whether it is here with another version of lab's own code than the host's.
    """

    name: str
    base: str
    size_bytes: int | None
    is_here: bool
    base_is_here: bool = False
    base_can_be_fetched: bool = False
    is_old: bool = False


def look(plan: Plan, root: Path) -> Facts:
    """Find out what the plan's image is, and whether it is here or can be built.

    Raises:
        LabError: The engine does not answer, compose does not understand the file, or the image is
            one that the user has named and does not fit this lab.
    """
    from lab.backends.compose.cli import Compose  # noqa: PLC0415
    from lab.backends.compose.engine import Engine  # noqa: PLC0415
    from lab.backends.compose.image import (  # noqa: PLC0415
        Standing,
        can_be_fetched,
        image_of,
        is_here,
        size_of,
        standing,
    )
    from lab.render.compose import render  # noqa: PLC0415

    engine = Engine()
    with TemporaryDirectory(prefix="lab-doctor-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(render(plan), encoding="utf-8")
        image = image_of(Compose(plan.name, file, root.absolute()).config())
    size = size_of(image.tensorflow)
    size_bytes = None if size is None else size.image_mb * 10**6
    found = standing(engine, image, plan)
    if found is Standing.FITS:
        return Facts(image.name, image.base, size_bytes, is_here=True)
    base_is_here = is_here(engine, image.base)
    return Facts(
        image.name,
        image.base,
        size_bytes,
        is_here=found is Standing.OLD,
        is_old=found is Standing.OLD,
        base_is_here=base_is_here,
        base_can_be_fetched=base_is_here or can_be_fetched(engine, image.base),
    )


def available(ask: Callable[[], Facts]) -> tuple[Finding, Facts | None]:
    """Whether the tasks' image is here, or can be built."""
    try:
        facts = ask()
    except TimeoutError:
        what = "the registry does not answer, and the image is not built"
        mend = (
            "build the base with `tools/base-image.sh`, then set LAB_BASE_IMAGE=lab-base:bookworm"
        )
        return _finding("image", Verdict.WARNING, what, mend), None
    except LabError as error:
        return _finding("image", Verdict.FAILED, error.what, error.mend, "no image"), None
    name, base = short(facts.name), short(facts.base)
    if facts.is_here and not facts.is_old:
        return _finding("image", Verdict.OK, f"{name} is here"), facts
    stands, lacks, builds = f"{name} is not built yet", f"there is no image {name}", "builds it"
    if facts.is_old:
        stands = lacks = f"{name} holds another version of lab/task than this lab"
        builds = "builds it again"
    if facts.base_is_here or facts.base_can_be_fetched:
        where = "is here" if facts.base_is_here else "can be fetched"
        what = f"{stands}; its base {base} {where}, and the first run {builds}"
        return _finding("image", Verdict.OK, what), facts
    return (
        _finding(
            "image",
            Verdict.FAILED,
            f"{lacks}, and its base {base} cannot be fetched",
            "`tools/base-image.sh` makes a base without a registry; then "
            "`export LAB_BASE_IMAGE=lab-base:bookworm`",
            "no image",
        ),
        facts,
    )


def room(
    answers: Answers,
    facts: Facts | None,
    free: Callable[[Path], tuple[Path, int]],
) -> Finding:
    """Whether the image fits where the engine keeps images.

    Args:
        answers: The engine's.
        facts: The image that is needed, where it is known.
        free: The directory that was measured, and the bytes that are free in it.
    """
    if not answers.is_here:
        return _finding("disk", Verdict.SKIPPED, "the engine runs on another machine")
    where, there = free(answers.images_directory)
    what = f"{_gb(there)} free in {where}"
    mend = "see `docker system df`; free some with `docker image prune` and `docker builder prune`"
    missing = facts is not None and not facts.is_here
    size = (facts.size_bytes or 0) if facts is not None and missing else 0
    if there >= size + ROOM_BYTES:
        takes = f"; the image takes {_gb(size)}" if size else ""
        return _finding("disk", Verdict.OK, f"{what}{takes}")
    if missing:
        what = f"{what}, and the image takes {_gb(size)} and {_gb(ROOM_BYTES)} beside it"
        return _finding("disk", Verdict.FAILED, what, mend, "no room for the image")
    return _finding("disk", Verdict.WARNING, what, mend)


def _finding(name: str, verdict: Verdict, what: str, mend: str = "", blocks: str = "") -> Finding:
    return Finding(AREA, name, verdict, what, mend, Need.COMPOSE, blocks)


def _gb(size: int) -> str:
    return f"{size / 10**9:.1f} GB"
