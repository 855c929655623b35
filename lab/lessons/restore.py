"""Put a project back to where a stage of a lesson ends: its files, and which runs are missing."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final

from lab.lessons.check import Evidence, check_stage
from lab.lessons.lesson import Lesson, Stage
from lab.project import SCRIPTS
from lab.shipped import SHIPPED, files_of

PARTS: Final = (SCRIPTS, "clusters")
"""What the commands of lessons use."""


def missing_stages(lesson: Lesson, until: Stage, evidence: Evidence) -> Sequence[Stage]:
    """Return the stages up to one, in order, whose runs are not all there."""
    stages = lesson.stages[: lesson.stages.index(until) + 1]
    return [each for each in stages if check_stage(each, evidence.runs, {}).hint]


def restore_files(root: Path) -> Path | None:
    """Give the programs and configs of a project their shipped content again.

    Other files of the user stay as they are. In a clone, the project's files are the shipped ones.

    Args:
        root: The project's directory.

    Returns:
        The directory inside the project that has what was replaced; None: nothing was.

    Raises:
        OSError: A file cannot be written or moved.
    """
    if root.resolve() == SHIPPED:
        return None
    parts = [part for part in PARTS if os.path.lexists(root / part)]
    kept = _new_directory(root)
    for part in parts:
        if not _is_directory(root / part):
            _keep(root, part, kept)
    for name, source in files_of(parts):
        target = root / name
        if _is_same(source, target):
            continue
        if os.path.lexists(target):
            _keep(root, name, kept)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return kept if kept.exists() else None


def _new_directory(root: Path) -> Path:
    """Return the path of a directory that does not exist yet."""
    name = f"before-restore-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    names = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(root / each for each in names if not os.path.lexists(root / each))


def _keep(root: Path, name: str, kept: Path) -> None:
    (kept / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).rename(kept / name)


def _is_directory(path: Path) -> bool:
    """Whether it is a directory, and not a link: the files behind a link are not the project's."""
    return path.is_dir() and not path.is_symlink()


def _is_same(source: Path, target: Path) -> bool:
    regular = target.is_file() and not target.is_symlink()
    return regular and filecmp.cmp(source, target, shallow=False)
