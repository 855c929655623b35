"""Trainings by programs, compared with those of the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice

import numpy as np

from lab.protocol.mnist import Floats, Mnist
from lab.protocol.records import Record
from tests import oracle
from tests.support.cluster import Task

SEED = 7
# Sums of float32 in another order: the difference grows with the number of updates.
assert_close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)


def batches(mnist: Mnist, task_index: int = 0, size: int = 100) -> Iterator[oracle.Batch]:
    return oracle.worker_batches(mnist.train, SEED, task_index, size)


def reference(
    model: str, stream: Iterator[oracle.Batch], updates: int, **rates: float
) -> list[oracle.Step]:
    """The oracle's updates, each with its parameters."""
    steps = oracle.train(oracle.initial_parameters(model, SEED), stream, **rates)
    copied = (
        oracle.Step(step.loss, {name: value.copy() for name, value in step.parameters.items()})
        for step in steps
    )
    return list(islice(copied, updates))


def assert_whole(task: Task) -> None:
    """No record is lost, and the last one reports that the task succeeded."""
    assert [record["seq"] for record in task.records] == list(range(len(task.records)))
    assert task.records[0]["kind"] == "start"
    assert task.final["status"] == "succeeded"
    assert "Traceback" not in task.stderr.read_text()
    assert "deprecated" not in task.stderr.read_text()


def assert_same(
    found: Mapping[str, Floats],
    model: str,
    stream: Callable[[], Iterator[oracle.Batch]],
    updates: int,
    **rates: float,
) -> None:
    """The parameters are the oracle's, except where rounding decides on a gradient.

    Where it does, a unit ends between a training that lets each such gradient pass and one that
    stops each. It may differ from both by as much again, since their differences can cancel out.
    """

    def trained(kink: float) -> oracle.Parameters:
        return reference(model, stream(), updates, kink=kink, **rates)[-1].parameters

    expected = trained(0.0)
    room = oracle.apart(trained(-oracle.ROUNDING), trained(oracle.ROUNDING))
    assert max(float(each.max()) for each in room.values()) < 2e-3
    assert max(float(np.median(each)) for each in room.values()) < 1e-5
    for name, value in expected.items():
        low, high = value - 2 * room[name], value + 2 * room[name]
        assert_close(found[name], np.clip(found[name], low, high), err_msg=name)


def losses(records: list[Record]) -> list[float]:
    return [float(record["loss"]) for record in records]
