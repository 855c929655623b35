"""`lab restore LESSON STAGE`.

First, the programs in `scripts/` and the configs in `clusters/` are replaced by the shipped ones;
files that you changed are kept in a directory `before-restore-…`. In a clone of lab, nothing is
replaced: use git. Then the commands of this stage and of the stages before it are run if their runs
are missing from the run store. Runs and answers are never removed.

Examples:
    # continue after the second stage, whatever happened before
    lab restore async late
    # the stages of the lesson
    lab check async
"""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from lab.base import command_line
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.base.options import Argument, verb
from lab.base.shipped import SHIPPED, files_of
from lab.base.text import suggestion
from lab.cluster.project import SCRIPTS, replace_files
from lab.runner.store.directory import runs_path
from lab.teach.lessons.check import Evidence, check_stage
from lab.teach.lessons.lesson import Lesson, Stage, load_lesson
from lab.verbs import python_name
from lab.verbs.printing import Note, Shown, prints


@dataclass(frozen=True, slots=True, repr=False)
class Restored(Shown):
    """A project at the end of a stage of a lesson.

    Attributes:
        lesson: The lesson.
        stage: The stage.
        runs: The stages whose runs were missing, and were made.
        changed: The directory with the user's changed files; None: there were none.
    """

    lesson: str
    stage: str
    runs: Sequence[str]
    changed: Path | None

    def _shown(self) -> Iterator[Note]:
        yield Note(
            f"{self.lesson}: all runs up to {self.stage} exist; see `lab check {self.lesson}`"
        )


@verb
def restore(
    lesson: Annotated[str, Argument("the lesson")],
    stage: Annotated[str, Argument("the stage to continue after")],
) -> Restored:
    """Restore the project's directory to the end of a lesson stage.

    Raises:
        InputError: There is no such lesson or stage.
        LabError: A run did not make what its stage needs.
    """
    wanted = load_lesson(lesson)
    stages = {each.name: each for each in wanted.stages}
    if stage not in stages:
        hint = suggestion(stage, stages)
        raise InputError(f"no stage {stage!r} in {lesson}", f"{hint}it has {', '.join(stages)}")
    changed = restore_files(Path())
    store = runs_path(None)
    missing = missing_stages(wanted, stages[stage], Evidence.read(store))
    for number, each in enumerate(missing, 1):
        LOG.info(f"{each.name} ({number} of {len(missing)}): {each.command}")
        _run(each, store)
    return Restored(lesson, stage, [each.name for each in missing], changed)


def _run(stage: Stage, store: Path) -> None:
    """Run the command of a stage, and check that its run has what the stage needs."""
    _, name, *argv = shlex.split(stage.command)
    module = importlib.import_module(f"lab.verbs.{python_name(name)}")
    command_line.call(name, module.command, argv)
    if hint := check_stage(stage, Evidence.read(store).runs, {}).hint:
        raise LabError(f"{stage.name}: its run is there, but {hint[0].lower()}{hint[1:]}")


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
        LOG.info("a clone of lab is not restored; undo changes with `git restore scripts clusters`")
        return None
    # The commands of lessons use these two.
    parts = [part for part in (SCRIPTS, "clusters") if os.path.lexists(root / part)]
    kept = replace_files(root, dict(files_of(parts)))
    changed = f"; your changed files are in {kept}" if kept else ""
    LOG.info(f"restored {' and '.join(f'{part}/' for part in parts) or 'nothing'}{changed}")
    return kept


command = prints(restore)
