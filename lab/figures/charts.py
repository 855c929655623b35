"""The figures, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lab.figures import cluster, loss, progress, staleness, throughput, waiting
from lab.figures.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = Sequence[Trace]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure.

    Attributes:
        name: Of its files, without an ending.
        title: What stands above it.
        draw: Draws it; None where the runs hold nothing for it.
        see: What is to be seen in it, sentence by sentence.
        read: How to read it.
        lacks: What is said in its place where it is not drawn.
    """

    name: str
    title: str
    draw: Callable[[Runs], Figure | None]
    see: Callable[[Runs], list[str]]
    read: Callable[[Runs], str]
    lacks: str


CHARTS: Final = (
    Chart(cluster.NAME, cluster.TITLE, cluster.draw, cluster.see, cluster.read,
          "which tasks it had is not known"),
    Chart(loss.NAME, loss.TITLE, loss.draw, loss.see, loss.read,
          "no record holds a loss"),
    Chart(progress.NAME, progress.TITLE, progress.draw, progress.see, progress.read,
          "no record holds a step"),
    Chart(throughput.NAME, throughput.TITLE, throughput.draw, throughput.see, throughput.read,
          "no worker has two records of a step"),
    Chart(waiting.NAME, waiting.TITLE, waiting.draw, waiting.see, waiting.read,
          "no record holds the time of a step"),
    Chart(staleness.NAME, staleness.TITLE, staleness.draw, staleness.see, staleness.read,
          "no record holds a staleness; synchronous training has none"),
)  # fmt: skip
