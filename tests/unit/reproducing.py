"""Runs of the chapter for tests, without TensorFlow: the oracle's training, recorded by 3 workers.

`trainings.json` was made by `benchmarks.chapter_oracle`, with another order of the batches than
those in `lab/reproduce/data/oracle.json`, and with faults.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.reproduce.run_metrics import RunMetrics, Step, WorkerMetrics

FILE: Final = Path(__file__).parent / "trainings.json"
STEPS_PER_EPOCH, RECORD_EVERY = 550, 110
LATE_EPOCH: Final = 40
EARLY_LOSS: Final = 2.0
"""Before the late epochs a loss is this multiple of the late one."""


@cache
def _trainings() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))["trainings"]


def training(variant: str = "") -> Any:
    """A training of the oracle; a variant is one with a fault."""
    return next(each for each in _trainings() if each["variant"] == variant)


def by_chance(random: np.random.Generator, own: Sequence[int], joins: int) -> list[Any]:
    """The global step after each worker's updates: equally fast workers, in an order by chance.

    Args:
        random: Draws the order.
        own: Updates that each worker makes.
        joins: Updates of the others after which worker 2 begins.
    """
    begins = (0, 0, joins / 2)
    times = [b + np.arange(n) + 1.5 * random.random(n) for b, n in zip(begins, own, strict=True)]
    order = np.argsort(np.argsort(np.concatenate([np.sort(each) for each in times]))) + 1
    return np.split(order, np.cumsum(own)[:-1])


def bare_run(*workers: WorkerMetrics, **changes: Any) -> RunMetrics:
    """A run of the chapter with these workers.

    Args:
        workers: The records of its workers.
        changes: Fields of the run that differ.
    """
    fields: dict[str, Any] = {
        "run_id": "20260101-0900-async-0001",
        "experiment": "async",
        "seed": 1,
        "succeeded": True,
        "parameters": {"epochs": 50, "batch_size": 100},
        "start": {"worker-2": "after 20,900 steps"},
        "faults": (),
        "workers": workers,
        "global_steps": 82_500,
        "updates_lost": 0,
        "accuracy": None,
    }
    return RunMetrics(**{**fields, **changes})


def chapter_run(
    seed: int,
    trained: Any = None,
    *,
    own: Sequence[int] = (27_500, 27_500, 27_500),
    joins: int = 20_900,
    **changes: Any,
) -> RunMetrics:
    """An asynchronous run of the chapter.

    Args:
        seed: One of the oracle's.
        trained: The oracle's training with accuracies and losses.
        own: Steps that each worker makes.
        joins: When worker 2 joins.
        changes: Fields of the run that are otherwise.
    """
    trained = trained or training()
    row = trained["initials"].index(seed)
    random = np.random.default_rng([seed, 7])
    totals = by_chance(random, own, joins)
    workers = tuple(
        WorkerMetrics(
            tuple(
                _step(index, local, int(total[local - 1]), trained, row, random)
                for local in range(RECORD_EVERY, len(total) + 1, RECORD_EVERY)
            ),
            _accuracy(trained, row, int(total[-1]) if len(total) else 0),
            int(total[-1]) if len(total) else 0,
            rate=0.01,
        )
        for index, total in enumerate(totals)
    )
    fields: dict[str, Any] = {
        "run_id": f"20260101-0900-async-{seed:04x}",
        "seed": seed,
        "global_steps": sum(own),
        "accuracy": workers[2].accuracy,
    }
    return bare_run(*workers, **{**fields, **changes})


def _step(
    worker: int, local: int, total: int, trained: Any, row: int, random: np.random.Generator
) -> Step:
    epoch = (local - 1) // STEPS_PER_EPOCH
    ends = local % STEPS_PER_EPOCH == 0
    place = trained["log_loss"].get(f"{worker}.{epoch}") if ends else None
    if place is not None:
        loss = math.exp(random.normal(place["mean"][row], place["deviation"][row]))
    else:
        loss = float(trained["late_loss"][row] * (1 + 0.3 * random.standard_normal()))
        if epoch < LATE_EPOCH:
            loss *= EARLY_LOSS
    return Step(local, total, epoch, ends, loss, total / 300)


def _accuracy(trained: Any, row: int, updates: int) -> float:
    known = sorted(int(step) for step in trained["accuracy"])
    return float(np.interp(updates, known, [trained["accuracy"][f"{s}"][row] for s in known]))
