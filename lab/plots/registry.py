"""The figures, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.plots import accuracy, cluster, loss, progress, staleness, throughput, wait_time
from lab.plots.data import Trace

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
        describe: Returns what it shows, a sentence each.
        caption: Returns how to read it.
        missing: Returns the reason that is printed instead if it is not drawn.
    """

    name: str
    title: str
    draw: Callable[[Runs], Figure | None]
    describe: Callable[[Runs], list[str]]
    caption: Callable[[Runs], str]
    missing: Callable[[Runs], str]


def _always(reason: str) -> Callable[[Runs], str]:
    return lambda _: reason


CHARTS: Final = (
    Chart("cluster", "The cluster", cluster.draw, cluster.describe, cluster.caption,
          _always("the tasks of the run are not known")),
    Chart("loss", "Loss", loss.draw, loss.describe, loss.caption,
          _always("no record holds a loss")),
    Chart("accuracy", "Accuracy on the test images", accuracy.draw, accuracy.describe,
          accuracy.caption, accuracy.missing),
    Chart("progress", "Global step over time", progress.draw, progress.describe, progress.caption,
          _always("no record holds a step")),
    Chart("throughput", "Throughput, and use of the GPUs", throughput.draw, throughput.describe,
          throughput.caption, throughput.missing),
    Chart("waiting", "Computing and waiting", wait_time.draw, wait_time.describe, wait_time.caption,
          _always("no record holds a waiting time; asynchronous programs record none")),
    Chart("staleness", "Staleness of the gradients", staleness.draw, staleness.describe,
          staleness.caption,
          _always("no record holds a staleness (synchronous training has none)")),
)  # fmt: skip
