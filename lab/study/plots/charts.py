"""The figures, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.study.plots import curves, staleness
from lab.study.plots.data import Trace

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
        """Return the caption for these runs."""
        return self.of_one if len(runs) == 1 else self.of_several


_GROUPS: Final = (
    " Runs that differ only in their seeds form a group: pale lines are its runs, the strong line"
    " is their mean, and the band its 95% interval."
)

_EVENTS: Final = (
    " Dashed lines are the events in the table above; a hatched area lasts until the event's end."
)

_STALENESS: Final = (
    "The updates by other workers between a step's read of the parameters and its own update."
    " Bars count the n recorded steps without each worker's first; the dashed mean is over all"
    " steps."
)

CHARTS: Final = (
    Chart(
        "loss",
        "Loss",
        curves.loss,
        "Pale points are single records, lines are means over neighbouring records. Workers that"
        f" train one model share a line. A loss that is not finite is not drawn.{_EVENTS}",
        "Lines are means over neighbouring records of all workers. The left panel compares updates,"
        f" the middle one time, the right one data.{_GROUPS}",
        "no record holds a loss",
    ),
    Chart(
        "accuracy",
        "Accuracy on the test images",
        curves.accuracy,
        "A point is a test of the shared parameters on all test images. Diamonds are the final"
        f" parameters.{_EVENTS}",
        f"Lines connect the tests of a run. Diamonds are the final parameters.{_GROUPS}",
        "the programs tested only at the end; async, sync, async-fast and sync-fast draw a curve"
        " with --eval_every 500, an own program with a line such as `step 500, test accuracy 0.91`",
    ),
    Chart(
        "progress",
        "Global step over time",
        curves.progress,
        "The global step counts the updates of all workers, so their lines coincide. A worker that"
        f" is slow, late or stopped leaves the others in the panel of their own steps.{_EVENTS}",
        "The slope is the speed. Images compare"
        f" runs whose updates use different numbers of them.{_GROUPS}",
        "no record holds a step",
    ),
    Chart(
        "throughput",
        "Throughput, and use of the GPUs",
        curves.throughput,
        "Means over equal spans of time. The thick line counts updates of the shared parameters"
        " until the first worker has finished, the others each worker's own steps. The driver"
        f" reports for which share of the time a GPU is busy.{_EVENTS}",
        f"Means over equal spans of time, until the first worker has finished.{_GROUPS}",
        "no worker has two records of a step at different times",
    ),
    Chart(
        "staleness",
        "Staleness of the gradients",
        staleness.draw,
        _STALENESS,
        f"{_STALENESS} Whiskers: the 95% interval over the runs of a group.",
        "no record holds a staleness (synchronous training has none)",
    ),
)
