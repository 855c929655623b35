"""The setting of a measurement, and its progress lines."""

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
    """The options of a measurement.

    Attributes:
        place: A separate directory and environment variables.
        pairs: The number of interleaved pairs, or of repetitions.
        quick: Whether to use small numbers, which only show that the measurement works.
        backends: The backends to measure.
        beside: The way to train without `lab` to compare with on compose; "": each.
        listing: A TensorFlow 1 program in the book's shape and its arguments; "": `LISTING`.
    """

    place: Workplace
    pairs: int
    quick: bool
    backends: tuple[str, ...]
    beside: str = ""
    listing: str = ""


def print_progress(line: str) -> None:
    """Print one line of progress."""
    print(line, file=sys.stderr, flush=True)


def with_progress(what: str, measure: Callable[[], T], show: Callable[[T], str]) -> Callable[[], T]:
    """Wrap a measurement, so that each call prints its result and its duration."""

    def measured() -> T:
        began = time.monotonic()
        found = measure()
        print_progress(f"  {what}: {show(found)} ({time.monotonic() - began:.1f} s)")
        return found

    return measured
