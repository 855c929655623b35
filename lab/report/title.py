"""The head of a report: its title, and whether its runs have the same length."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from lab.formatting import counted
from lab.report.loader import ReportRun
from lab.text import clipped

_NAMED: Final = 4  # the most runs or labels that are named
_LETTERS: Final = 60  # the longest name in a title
_EQUAL: Final = 0.02  # lengths that differ by less are equal: workers end a few steps apart


def title(runs: Sequence[ReportRun]) -> str:
    """Return the title of a report: its experiments, and the names or the number of its runs."""
    experiments = _listed(dict.fromkeys(each.info.spec.experiment for each in runs))
    if len(runs) == 1:
        name = clipped(runs[0].name, _LETTERS)
        return f"{experiments}: {name}" if runs[0].label else f"{experiments}: run {name}"
    labels = dict.fromkeys(each.prefix or each.label for each in runs)
    names = _listed(labels) if all(labels) else ""
    if not names and len(runs) == 2:  # noqa: PLR2004
        names = _listed(each.name for each in runs)
    return f"{experiments}: {counted(len(runs), 'run')}" + (f" ({names})" if names else "")


def _listed(names: Iterable[str]) -> str:
    """Return up to four names, and the number of the others."""
    every = [clipped(name, _LETTERS) for name in names]
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def has_equal_lengths(runs: Sequence[ReportRun]) -> bool:
    """Return whether all runs saw about as many images, or made as many global steps.

    Updates of different experiments use different numbers of images. Unknown lengths are ignored.
    """
    images = [seen for each in runs if (seen := _images(each))]
    steps = [float(step) for each in runs if (step := each.summary.global_step)]
    lengths = images if len(images) == len(runs) else steps
    return not lengths or max(lengths) - min(lengths) <= _EQUAL * max(lengths)


def _images(run: ReportRun) -> float:
    """Return the images that all workers saw, also after their last step records; 0: unknown."""
    workers = run.trace.workers
    recorded = run.trace.of("local_step").groupby("task")["value"].max().sum()
    made = sum(task.local_step or 0 for task in run.summary.tasks if task.task in workers)
    factor = made / recorded if 0 < recorded < made else 1.0
    return max((factor * seen for seen in run.trace.values("seen")), default=0.0)
