"""Sources, values and runs for tests of `lab reproduce`, without TensorFlow."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.protocol.experiments.experiment import with_defaults
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume import RunSpec
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.study.reproduce.claims import Claim, Recipe, Source
from lab.study.reproduce.measured_runs import MeasuredRun
from lab.study.reproduce.measures import reference
from tests.support.specs import changed

Records = list[dict[str, Any]]

RUNS: Final = 8
OWN: Final = 27_500
"""The steps of each worker of the chapter."""


def number(value: float, matters: float, **changes: Any) -> Claim:
    fields = {
        "kind": "measured",
        "where": "a table",
        "fault": "a fault",
        "measure": "test_accuracy",
    }
    name = changes.pop("id", "number")
    return Claim(id=name, text=name, value=value, matters=matters, **{**fields, **changes})


def statement(name: str = "statement", direction: Any = "above", effect: float = 0.0) -> Claim:
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
    rate: float | None = 0.01,
    accuracy: float | None = None,
) -> Records:
    """Records of a worker, one each `every` own steps: the global step, the loss and the time."""
    n = len(totals)
    columns = zip(totals, losses or [0.5] * n, times or range(n), strict=True)
    return [
        {"kind": "event", "status": "ready", "learning_rate": rate},
        *({"kind": "step", "local_step": every * i, "global_step": total, "loss": loss,
           "time_unix": float(time)} for i, (total, loss, time) in enumerate(columns, start=1)),
        *([{"kind": "eval", "accuracy": accuracy}] if accuracy is not None else []),
        {"kind": "final", "local_step": every * n},
    ]  # fmt: skip


def slowed(records: Records, begin: float, end: float) -> Records:
    """The same of a worker that a fault slows between two times."""
    texts = {"fault: slow:0.3,15s worker-0": begin, "fault over: slow:0.3,15s worker-0": end}
    events = [{"kind": "event", "message": text, "time_unix": at} for text, at in texts.items()]
    return [*events, *records]


@dataclass(frozen=True)
class MadeRun:
    """The content of a run's files: its settings, and the records of each worker."""

    info: RunInfo
    workers: tuple[Records, ...]

    def but(self, **facts: Any) -> MadeRun:
        return replace(self, info=changed(self.info, **facts))

    def with_records(self, kind: str, change: Callable[[int, dict[str, Any]], Any]) -> MadeRun:
        """The same with changes of each record of a kind, by the worker's index and the record."""
        workers = (
            [r | change(index, r) if r["kind"] == kind else r for r in records]
            for index, records in enumerate(self.workers)
        )
        return replace(self, workers=tuple(workers))

    def write(self, store: Path) -> RunDir:
        directory = RunDir(store / self.info.run_id)
        directory.create(self.info)
        for index, records in enumerate(self.workers):
            path = directory.records(f"worker-{index}")
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return directory

    def read(self) -> MeasuredRun:
        with tempfile.TemporaryDirectory() as store:
            return MeasuredRun.read(self.write(Path(store)))


def run_of(
    source: Source,
    role: str,
    seed: int | None = 1,
    workers: Sequence[Records] = (),
    *,
    quick: bool = False,
    accuracy: float | None = None,
    test_loss: float | None = None,
    **flags: object,
) -> MadeRun:
    """A run by a recipe of a source.

    Args:
        source: The source.
        role: The role of the run.
        seed: Its seed; it is also in the run's id.
        workers: The records of its workers; none: as many as the recipe wants, each with one step
            that no other run has.
        quick: Whether it is a quick run.
        accuracy: The accuracy of the final parameters.
        test_loss: The result of that name.
        flags: Further flags of the program.
    """
    recipe = source.recipes[role].variant(quick=quick)
    experiment = EXPERIMENTS[recipe.experiment]
    args = [f"--{name}={value}" for name, value in {**recipe.flags, **flags}.items()]
    own = (seed or 0) + quick / 9 + sum(map(ord, role)) / 1e6
    chief, *others = workers or [worker([1], losses=[own])] * (recipe.workers or 3)
    result = {"kind": "result", "name": "test loss", "value": test_loss}
    probe = {"kind": "final", "accuracy": accuracy, "global_step": 3 * OWN, "probe": 3 * OWN}
    info = RunInfo(
        run_id=f"20260101-{900 + (seed or 0):04}-{recipe.experiment}-{role.replace('-', '')}",
        spec=RunSpec(recipe.experiment, start=recipe.start, faults=tuple(recipe.faults)),
        state=State.SUCCEEDED,
        seed=seed,
        cluster={"ps": ["a:2222"], "worker": [f"b:{2223 + i}" for i in range(1 + len(others))]},
        hyperparameters=with_defaults(experiment, [*experiment.args, *args]),
    )
    return MadeRun(info, ([*chief, probe, result], *others))


def chapter_run(source: Source, seed: int, role: str = "whole") -> MadeRun:
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
            worker(totals.tolist(), losses=losses.tolist(), accuracy=accuracy, every=250)
        )
    return run_of(source, role, seed, workers, accuracy=accuracy)


def in_step(run: MadeRun) -> MadeRun:
    """The same with the records of a synchronous program: own steps are the global step."""
    return run.with_records("step", lambda _, r: {"global_step": r["local_step"]}).with_records(
        "final", lambda _, r: {"global_step": OWN, "probe": OWN} if "probe" in r else {}
    )
