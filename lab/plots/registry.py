"""The figures, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.plots import cluster, loss, progress, staleness, throughput, wait_time
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
        missing: The reason that is printed instead if it is not drawn.
    """

    name: str
    title: str
    draw: Callable[[Runs], Figure | None]
    describe: Callable[[Runs], list[str]]
    caption: Callable[[Runs], str]
    missing: str


CHARTS: Final = (
    Chart(cluster.NAME, cluster.TITLE, cluster.draw, cluster.describe, cluster.caption,
          "the tasks of the run are not known"),
    Chart(loss.NAME, loss.TITLE, loss.draw, loss.describe, loss.caption,
          "no record holds a loss"),
    Chart(progress.NAME, progress.TITLE, progress.draw, progress.describe, progress.caption,
          "no record holds a step"),
    Chart(throughput.NAME, throughput.TITLE, throughput.draw, throughput.describe,
          throughput.caption, "no worker has two records of a step"),
    Chart(wait_time.NAME, wait_time.TITLE, wait_time.draw, wait_time.describe, wait_time.caption,
          "no record holds the time of a step"),
    Chart(staleness.NAME, staleness.TITLE, staleness.draw, staleness.describe, staleness.caption,
          "no record holds a staleness (synchronous training has none)"),
)  # fmt: skip
