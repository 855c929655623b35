"""Put a project back to where a stage of a lesson ends: its files, and which runs are missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.lessons.check import Evidence, check_stage
from lab.lessons.lesson import Lesson, Stage
from lab.log import LOG
from lab.project import SCRIPTS, replace_files
from lab.shipped import SHIPPED, files_of

PARTS: Final = (SCRIPTS, "clusters")
"""What the commands of lessons use."""


def missing_stages(lesson: Lesson, until: Stage, evidence: Evidence) -> Sequence[Stage]:
    """Return the stages up to one, in order, whose runs are not all there."""
    stages = lesson.stages[: lesson.stages.index(until) + 1]
    return [each for each in stages if check_stage(each, evidence.runs, {}).hint]


def restore_files(root: Path) -> Path | None:
    """Give the programs and configs of a project their shipped content again.

    Other files of the user stay as they are, and so does a clone of lab. A line says what was done.

    Args:
        root: The project's directory.

    Returns:
        The directory inside the project that has what was replaced; None: nothing was.

    Raises:
        OSError: A file cannot be written or moved.
    """
    if root.resolve() == SHIPPED:
        LOG.info("a clone of lab is not restored; undo changes by `git restore scripts clusters`")
        return None
    parts = [part for part in PARTS if os.path.lexists(root / part)]
    kept = replace_files(root, dict(files_of(parts)))
    changed = f"; your changed files are in {kept}" if kept else ""
    LOG.info(f"restored {' and '.join(f'{part}/' for part in parts) or 'nothing'}{changed}")
    return kept
