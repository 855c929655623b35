"""The measured values of a run, for the claims with a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from lab.reproduce.claims import Claim
from lab.reproduce.run_metrics import RunMetrics, WorkerMetrics

LATE_EPOCH: Final = 40
"""From this epoch on a worker's losses count as late, as in the NumPy reference."""


def value(claim: Claim, run: RunMetrics) -> float | None:
    """The value of a run for a claim; None if the run did not record it."""
    return _VALUES[claim.measure](claim, run)


def _worker(claim: Claim, run: RunMetrics) -> WorkerMetrics:
    index = claim.keys["worker"]
    return run.workers[index] if index < len(run.workers) else WorkerMetrics(())


def _hyperparameter(claim: Claim, run: RunMetrics) -> float | None:
    given = run.parameters.get(claim.keys["name"])
    return float(given) if isinstance(given, int | float) else None


def _learning_rate(_claim: Claim, run: RunMetrics) -> float | None:
    """The learning rate that the programs recorded; None if they differ."""
    printed = {worker.rate for worker in run.workers}
    return printed.pop() if len(printed) == 1 else None


def _global_step_at(claim: Claim, run: RunMetrics) -> float | None:
    found = _worker(claim, run).at_end_of(claim.keys["epoch"])
    return None if found is None else float(found.total)


def _global_step_at_local(claim: Claim, run: RunMetrics) -> float | None:
    steps = _worker(claim, run).steps
    return next((float(s.total) for s in steps if s.local == claim.keys["local_step"]), None)


def places(claim: Claim) -> list[str]:
    """The `worker.epoch` names of the losses that a claim is about."""
    keys = claim.keys
    workers, epochs = keys.get("workers"), keys.get("epochs")
    if workers is None or epochs is None:
        return [f"{keys['worker']}.{keys['epoch']}"]
    return [f"{worker}.{epoch}" for worker in workers for epoch in epochs]


def _losses_at(claim: Claim, run: RunMetrics) -> float | None:
    """The geometric mean of the losses at the claim's places."""
    losses = []
    for place in places(claim):
        worker, epoch = map(int, place.split("."))
        found = run.workers[worker].at_end_of(epoch) if worker < len(run.workers) else None
        if found is None:
            return None
        losses.append(found.loss)
    if not all(0 < loss < math.inf for loss in losses):
        return math.nan
    return float(np.exp(np.mean(np.log(losses))))


def _late_loss(_claim: Claim, run: RunMetrics) -> float | None:
    losses = [s.loss for worker in run.workers for s in worker.steps if s.epoch >= LATE_EPOCH]
    return float(np.mean(losses)) if losses else None


def joined_at(run: RunMetrics, worker: int) -> int | None:
    """The number of updates by others when this worker recorded its first step."""
    steps = run.workers[worker].steps if worker < len(run.workers) else ()
    return steps[0].total - steps[0].local if steps else None


def overlap(claim: Claim, run: RunMetrics) -> float | None:
    """The number of updates by others after a late worker's first step; None: it made no step."""
    late = [int(task.rpartition("-")[2]) for task in run.start]
    begun = joined_at(run, late[0]) if late else None
    if begun is None:
        return None
    others = sum(w.local_steps for index, w in enumerate(run.workers) if index != late[0])
    return float(max(others - begun, 0))


_VALUES: Final[Mapping[str, Callable[[Claim, RunMetrics], float | None]]] = {
    "hyperparameter": _hyperparameter,
    "learning_rate": _learning_rate,
    "global_steps": lambda _claim, run: float(run.global_steps),
    "local_steps": lambda claim, run: float(_worker(claim, run).local_steps),
    "updates_lost": lambda _claim, run: None if run.updates_lost is None else run.updates_lost,
    "accuracy": lambda claim, run: _worker(claim, run).accuracy,
    "global_step_at": _global_step_at,
    "local_total": lambda _claim, run: float(sum(w.local_steps for w in run.workers)),
    "global_step_at_local": _global_step_at_local,
    "loss_at": _losses_at,
    "losses_at": _losses_at,
    "late_loss": _late_loss,
    "late_overlap": overlap,
}
