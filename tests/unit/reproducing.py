"""Runs of the chapter for tests, without TensorFlow: the oracle's training, told by three workers.

`trainings.json` was made by `benchmarks.chapter_oracle`, with another order of the batches than
those in `lab/reproduce/data/oracle.json`, and with faults.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.reproduce.figures import RunFigures, Step, WorkerFigures

FILE: Final = Path(__file__).parent / "trainings.json"
STEPS_PER_EPOCH, RECORD_EVERY, WORKERS = 550, 110, 3


def training(variant: str = "") -> Any:
    """A training of the oracle; a variant is one with a fault."""
    found = json.loads(FILE.read_text(encoding="utf-8"))["trainings"]
    return next(each for each in found if each["variant"] == variant)


def by_chance(
    random: np.random.Generator, own: Sequence[int], joins: int
) -> Iterator[tuple[int, int]]:
    """Whose update comes next, and which it is: of equally fast workers, any of those who train."""
    made, total = [0] * WORKERS, 0
    while any(count < most for count, most in zip(made, own, strict=True)):
        ready = [w for w in range(WORKERS) if made[w] < own[w] and (w < 2 or total >= joins)]
        for worker in random.permutation(ready):
            made[worker] += 1
            total += 1
            yield int(worker), total


def chapter_run(
    seed: int,
    trained: Any = None,
    *,
    own: Sequence[int] = (27_500, 27_500, 27_500),
    joins: int = 20_900,
    **changes: Any,
) -> RunFigures:
    """An asynchronous run of the chapter.

    Args:
        seed: One of the oracle's.
        trained: The oracle's training that tells accuracies and losses.
        own: Steps that each worker makes.
        joins: When worker 2 joins.
        changes: Fields of the run that are otherwise.
    """
    trained = trained or training()
    row = trained["initials"].index(seed)
    random = np.random.default_rng([seed, 7])
    steps: list[list[Step]] = [[], [], []]
    counts, tested = [0] * WORKERS, [0] * WORKERS
    total = 0
    for worker, total in by_chance(random, own, joins):
        counts[worker] += 1
        tested[worker] = total
        if counts[worker] % RECORD_EVERY == 0:
            steps[worker].append(_step(worker, counts[worker], total, trained, row, random))
    workers = tuple(
        WorkerFigures(tuple(steps[w]), _accuracy(trained, row, tested[w]), tested[w])
        for w in range(WORKERS)
    )
    fields: dict[str, Any] = {
        "run_id": f"20260101-0900-async-{seed:04x}",
        "experiment": "async",
        "seed": seed,
        "succeeded": True,
        "parameters": {"epochs": 50, "batch_size": 100},
        "start": {"worker-2": "after 20,900 steps"},
        "faults": (),
        "workers": workers,
        "global_steps": total,
        "updates_lost": 0,
        "accuracy": workers[2].accuracy,
    }
    return RunFigures(**{**fields, **changes})


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
    return Step(local, total, epoch, ends, loss, total / 300)


def _accuracy(trained: Any, row: int, updates: int) -> float:
    known = sorted(int(step) for step in trained["accuracy"])
    return float(np.interp(updates, known, [trained["accuracy"][f"{s}"][row] for s in known]))
