"""Rates and times of a training's steps, from its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lab.records import Record

Records = Mapping[str, Sequence[Record]]
"""Task to its records, in order: `worker-0`, `worker-1`, …"""

STEPS = frozenset({"step", "epoch"})


class UnfitError(Exception):
    """The records cannot be evaluated; the message has the reason."""


def marks(records: Iterable[Record]) -> list[tuple[float, int]]:
    """Return the time (seconds since the epoch) and the global step of each step record."""
    return [
        (float(record["time_unix"]), int(record["global_step"]))
        for record in records
        if record["kind"] in STEPS
    ]


def steps_per_second(records: Records) -> float:
    """Return the global steps per second while all workers train.

    The interval begins when every worker has written its first step record, and ends at the first
    worker's last one. It excludes the start and the end, when fewer workers train. In every record
    the global step is the value after the worker's own increment.

    Raises:
        UnfitError: There are fewer than two records while all workers train.
    """
    begin, end = common_time(records)
    of_each = _of_workers(records)
    window = sorted(mark for each in of_each for mark in each if begin <= mark[0] <= end)
    if len(window) < 2 or window[-1][0] <= window[0][0]:  # noqa: PLR2004
        raise UnfitError("the workers hardly trained at the same time; use more steps")
    return (window[-1][1] - window[0][1]) / (window[-1][0] - window[0][0])


def all_stepped_at(records: Records) -> float:
    """Return the time of the last worker's first step record, in seconds since the epoch.

    Raises:
        UnfitError: A worker has no step record.
    """
    return common_time(records)[0]


def common_time(records: Records) -> tuple[float, float]:
    """Return when every worker has made its first step, and when the first one made its last.

    Both are in seconds since the epoch.

    Raises:
        UnfitError: A worker has no step record.
    """
    of_each = _of_workers(records)
    if not of_each or not all(of_each):
        raise UnfitError("a worker has no step record")
    return max(each[0][0] for each in of_each), min(each[-1][0] for each in of_each)


def _of_workers(records: Records) -> list[list[tuple[float, int]]]:
    return [marks(each) for task, each in records.items() if task.startswith("worker-")]
