"""One yardstick for every training: what its own records say of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lab.records import Record

Records = Mapping[str, Sequence[Record]]
"""Task to its records, in order: `worker-0`, `worker-1`, …"""

STEPS = frozenset({"step", "epoch"})


class UnfitError(Exception):
    """The records cannot be measured; the message says why."""


def marks(records: Iterable[Record]) -> list[tuple[float, int]]:
    """Time (seconds since the epoch) and global step of each step record."""
    return [
        (float(record["time_unix"]), int(record["global_step"]))
        for record in records
        if record["kind"] in STEPS
    ]


def steps_per_second(records: Records) -> float:
    """Global steps per second while all workers train.

    Counted is the time in which every worker had written its first step record and none yet its
    last: neither the start-up nor the end, when fewer workers train, is in it. A record's global
    step is the one right after its own increment, whoever wrote it.

    Raises:
        UnfitError: The workers did not train together for two records.
    """
    of_each = [marks(each) for task, each in records.items() if task.startswith("worker-")]
    if not of_each or not all(of_each):
        raise UnfitError("a worker has no step record")
    begin = max(each[0][0] for each in of_each)
    end = min(each[-1][0] for each in of_each)
    window = sorted(mark for each in of_each for mark in each if begin <= mark[0] <= end)
    if len(window) < 2 or window[-1][0] <= window[0][0]:  # noqa: PLR2004
        raise UnfitError("the workers hardly trained at the same time; train for longer")
    return (window[-1][1] - window[0][1]) / (window[-1][0] - window[0][0])


def all_stepped_at(records: Records) -> float:
    """When the last worker had written its first step record, in seconds since the epoch.

    Raises:
        UnfitError: A worker has none.
    """
    of_each = [marks(each) for task, each in records.items() if task.startswith("worker-")]
    if not of_each or not all(of_each):
        raise UnfitError("a worker has no step record")
    return max(each[0][0] for each in of_each)
