"""The figures, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.study.plots import curves, staleness
from lab.study.plots.data import Trace, grouped

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = Sequence[Trace]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure.

    Attributes:
        name: The name of its files, without a suffix.
        title: Its heading.
        draw: Draws it; returns None if the runs lack the data.
        of_one: The caption for a single run.
        of_several: The caption for several runs.
        missing: What the runs lack if it is not drawn.
    """

    name: str
    title: str
    draw: Callable[[Runs], Figure | None]
    of_one: str
    of_several: str
    missing: str

    def caption(self, runs: Runs) -> str:
        """Return the caption for these runs, with the sentences about what they have."""
        return (self.of_one if len(runs) == 1 else self.of_several).format(
            events=_EVENTS if runs[0].marks else "",
            gpus=_GPUS if any(len(run.values("utilisation")) for run in runs) else "",
            groups=_GROUPS if len(grouped(runs)) < len(runs) else "",
        )


_GROUPS: Final = (
    " Runs that differ only in their seeds form a group: pale lines are its runs, the strong line"
    " is their mean, and the band its 95% interval."
)

_EVENTS: Final = (
    " Dashed lines are the events in the table above; a hatched area lasts until the event's end."
)

_GPUS: Final = " The driver reports for which share of the time a GPU is busy."

_STALENESS: Final = (
    "The updates by other workers between a step's read of the parameters and its own update."
    " Bars, or dots if there are few, count the n recorded steps without each worker's first; the"
    " dashed mean is over all steps."
)

CHARTS: Final = (
    Chart(
        "loss",
        "Loss",
        curves.loss,
        "Pale points are single records, lines are means over neighbouring records. Workers that"
        " train one model share a line. A loss that is not finite is not drawn.{events}",
        "Lines are means over neighbouring records of all workers. The left panel compares updates,"
        " the middle one time, the right one data.{groups}",
        "no record has a loss",
    ),
    Chart(
        "accuracy",
        "Accuracy on the test images",
        curves.accuracy,
        "A point is a test of the shared parameters on all test images. Diamonds are the final"
        " parameters.{events}",
        "Lines connect the tests of a run. Diamonds are the final parameters.{groups}",
        "the programs tested only at the end; async, sync, async-fast and sync-fast draw a curve"
        " with --eval_every 500, an own program with a line such as `step 500, test accuracy 0.91`",
    ),
    Chart(
        "progress",
        "Global step over time",
        curves.progress,
        "The global step counts the updates of all workers, so their lines coincide. A worker that"
        " is slow, late or stopped leaves the others in the panel of their own steps.{events}",
        "The slope is the speed. Images compare"
        " runs whose updates use different numbers of them.{groups}",
        "no record has a step",
    ),
    Chart(
        "throughput",
        "Throughput",
        curves.throughput,
        "Means over equal spans of time. The thick line counts updates of the shared parameters"
        " until the first worker has finished, the others each worker's own steps.{gpus}{events}",
        "Means over equal spans of time, until the first worker has finished.{gpus}{groups}",
        "no worker has two records of a step at different times",
    ),
    Chart(
        "staleness",
        "Staleness of the gradients",
        staleness.draw,
        _STALENESS,
        f"{_STALENESS} Whiskers: the 95% interval over the runs of a group.",
        "no record has a staleness (synchronous training has none)",
    ),
)
