"""Sources, values and runs for tests of `lab reproduce`, without TensorFlow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.experiments.registry import EXPERIMENTS, with_defaults
from lab.reproduce.claims import Claim, Recipe, Source
from lab.reproduce.measures import reference
from lab.reproduce.metrics import RunMetrics, Step, WorkerMetrics
from lab.reproduce.recipes import recipe_for
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.volume import RunSpec
from lab.volume.states import State

RUNS: Final = 8
OWN: Final = 27_500
"""The steps of each worker of the chapter."""


def number(value: float, matters: float, **changes: Any) -> Claim:
    """A number that a source printed."""
    fields = {
        "kind": "measured",
        "where": "a table",
        "fault": "a fault",
        "measure": "test_accuracy",
    }
    name = changes.pop("id", "number")
    return Claim(id=name, text=name, value=value, matters=matters, **{**fields, **changes})


def statement(name: str = "statement", direction: str = "above", effect: float = 0.0) -> Claim:
    """A statement without a number."""
    return Claim(name, name, "qualitative", "a text", "pace", direction=direction, effect=effect)


def source_of(*claims: Claim, runs: int = RUNS) -> Source:
    """A source with these claims, all on runs of one role."""
    return Source("made", "a source", {"whole": Recipe("async", "async-fast", runs)}, claims)


def by_seed(values: Sequence[float | None]) -> dict[int, float | None]:
    """Values of runs with the seeds 1, 2, …."""
    return dict(enumerate(values, start=1))


def worker(
    totals: Sequence[int],
    *,
    every: int = 100,
    losses: Sequence[float] | None = None,
    times: Sequence[float] | None = None,
    **changes: Any,
) -> WorkerMetrics:
    """A worker that records each `every` own steps: the global step, the loss and the time."""
    n = len(totals)
    columns = zip(totals, losses or [0.5] * n, times or range(n), strict=True)
    steps = (Step(every * (i + 1), *(row)) for i, row in enumerate(columns))
    return WorkerMetrics(tuple(steps), **{"local_step": every * n, "rate": 0.01, **changes})


def run_of(
    source: Source,
    role: str,
    seed: int | None = 1,
    workers: Sequence[WorkerMetrics] = (),
    *,
    quick: bool = False,
    **changes: Any,
) -> RunMetrics:
    """A run by a recipe of a source.

    Args:
        source: The source.
        role: The role of the run.
        seed: Its seed; it is also in the run's id.
        workers: Its workers; none: as many as the recipe wants, each with one record.
        quick: Whether it is a quick run.
        changes: Fields that differ; `flags` are further flags of the program.
    """
    recipe = recipe_for(source.recipes[role], quick=quick)
    experiment = EXPERIMENTS[recipe.experiment]
    flags = {**recipe.flags, **changes.pop("flags", {})}
    args = [*experiment.args, *(f"--{name}={value}" for name, value in flags.items())]
    given = with_defaults(experiment, [*args, f"--seed={seed or 0}"])
    fields: dict[str, Any] = {
        "run_id": f"20260101-{900 + (seed or 0):04}-{recipe.experiment}-{role.replace('-', '')}",
        "experiment": recipe.experiment,
        "seed": seed,
        "succeeded": True,
        "parameters": {k: v for k, v in given.items() if v is False or v != 0},
        "start": recipe.start,
        "faults": recipe.faults,
        # Each run has records of its own.
        "workers": tuple(workers)
        or tuple(
            worker([i + 1], losses=[(seed or 0) + quick / 9 + sum(map(ord, role)) / 1e6])
            for i in range(recipe.workers or 3)
        ),
        "global_step": 3 * OWN,
        "updates_lost": 0,
        "accuracy": None,
    }
    return RunMetrics(**{**fields, **changes})


def chapter_run(source: Source, seed: int, role: str = "whole", **changes: Any) -> RunMetrics:
    """An asynchronous run of the chapter: three equally fast workers in an order by chance.

    It has the accuracies of the NumPy reference. Each worker records each 250th of its steps.
    """
    random = np.random.default_rng([seed, len(role)])
    own = np.arange(250, OWN + 1, 250)
    late = 20_900 if source.recipes[role].start else 0
    final = reference("async")[seed].mean() + 0.0003 * random.standard_normal()
    workers = []
    for index in range(3):
        # While worker 2 is not there, each of the others makes half of the updates; at last it is
        # alone.
        mean = 3 * own + late if index == 2 else np.maximum(2 * own, 3 * own - late // 2)
        totals = np.minimum(mean + random.integers(-300, 300, len(own)), 2 * OWN + own)
        losses = 0.55 * np.exp(0.3 * random.standard_normal(len(own)))
        accuracy = round(final - 0.0002 * (2 - index), 4)
        workers.append(
            worker(totals.tolist(), losses=losses.tolist(), test_accuracy=accuracy, every=250)
        )
    return run_of(source, role, seed, workers, **{"accuracy": workers[2].test_accuracy, **changes})


def in_step(run: RunMetrics) -> RunMetrics:
    """The same with the records of a synchronous program: own steps are the global step."""
    workers = tuple(
        replace(each, steps=tuple(replace(step, total=step.local) for step in each.steps))
        for each in run.workers
    )
    return replace(run, workers=workers, global_step=OWN)


def write_run(store: Path, run: RunMetrics) -> RunDir:
    """Write the files of a run that has these metrics, as `lab run` does."""
    directory = RunDir(store / run.run_id)
    count = len(run.workers)
    directory.create(
        RunInfo(
            run_id=run.run_id,
            spec=RunSpec(run.experiment, start=run.start, faults=run.faults),
            state=State.SUCCEEDED if run.succeeded else State.FAILED,
            seed=run.seed,
            cluster={"ps": ["a:2222"], "worker": [f"b:{2223 + i}" for i in range(count)]},
            hyperparameters=run.parameters,
        )
    )
    for index, each in enumerate(run.workers):
        path = directory.records(f"worker-{index}")
        path.parent.mkdir(exist_ok=True)
        lines = _records(each) + (_chief_records(run) if index == 0 else [])
        if index == 0:
            pairs = run.results.items()
            lines += [{"kind": "result", "name": name, "value": value} for name, value in pairs]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def _records(of: WorkerMetrics) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = [
        {"kind": "event", "status": "ready", "learning_rate": of.rate},
        *(
            {"kind": "event", "message": f"{text}slow:0.3,15s worker-0", "time_unix": moment}
            for text, moment in zip(("fault: ", "fault over: "), of.slowed or (), strict=False)
        ),
        *(
            {"kind": "step", "local_step": s.local, "global_step": s.total, "epoch": 0,
             "loss": s.loss, "time_unix": s.time_s}
            for s in of.steps
        ),
        {"kind": "final", "local_step": of.local_step},
    ]  # fmt: skip
    if of.test_accuracy is not None:
        found.insert(-1, {"kind": "eval", "accuracy": of.test_accuracy, "global_step": 1})
    return found


def _chief_records(run: RunMetrics) -> list[Mapping[str, Any]]:
    lost = run.updates_lost or 0
    return [
        {"kind": "eval", "accuracy": run.accuracy or 0.0, "global_step": run.global_step,
         "probe": (run.global_step or 0) - lost},
    ]  # fmt: skip
