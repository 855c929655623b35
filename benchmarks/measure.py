"""What every measurement is given, and how it says how far it is."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.trainings import Workplace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """How thoroughly to measure, and where.

    Attributes:
        place: A directory and variables of its own.
        pairs: How many interleaved pairs, or how often where nothing is compared.
        quick: Numbers so small that they show only that it works.
        backends: The backends to measure on.
        beside: The one way to train without `lab` that is compared on compose; "": each.
        listing: A TensorFlow 1 program of the book's shape and its arguments; "": `LISTING`.
    """

    place: Workplace
    pairs: int
    quick: bool
    backends: tuple[str, ...]
    beside: str = ""
    listing: str = ""


def say(line: str) -> None:
    """One line of progress."""
    print(line, file=sys.stderr, flush=True)


def told(what: str, measure: Callable[[], T], show: Callable[[T], str]) -> Callable[[], T]:
    """The same measurement; what it found and how long it took is said each time."""

    def measured() -> T:
        began = time.monotonic()
        found = measure()
        say(f"  {what}: {show(found)} ({time.monotonic() - began:.1f} s)")
        return found

    return measured
