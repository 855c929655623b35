"""The runs of a source: each with its measures, and which of them claims may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd
from pandas.api.typing import DataFrameGroupBy

from lab.base.formatting import counted
from lab.protocol.experiments.experiment import with_defaults
from lab.protocol.experiments.faults import DONE
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume.states import State
from lab.runner.store.dataframe import read_records, steps_of
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize
from lab.runner.store.summary import Summary, TaskSummary
from lab.study.reproduce.claims import Recipe, Source

_OF_STEP: Final = ["task", "local_step", "global_step", "loss", "time_unix"]


@dataclass(frozen=True)
class MeasuredRun:
    """A run with its measures.

    Attributes:
        info: Its settings.
        summary: The measures of the run and of its tasks.
        records: The records of all workers, as `lab.runner.store.dataframe` has them.
    """

    info: RunInfo
    summary: Summary
    records: pd.DataFrame

    @classmethod
    def read(cls, run: RunDir) -> MeasuredRun:
        """Read a run.

        Raises:
            LabError: `run.json` is missing or unreadable.
        """
        summary = summarize(run)
        workers = [task.task for task in summary.tasks if task.job_name == "worker"]
        return cls(run.read(), summary, read_records(run, workers))

    @property
    def experiment(self) -> str:
        """Its experiment, or the user's own program."""
        return self.info.spec.program if self.info.spec.own else self.info.spec.experiment

    @property
    def workers(self) -> list[TaskSummary]:
        """The summary of each worker, by index."""
        return [task for task in self.summary.tasks if task.job_name == "worker"]

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The recorded steps of all workers: task, local and global step, loss and time."""
        rows = steps_of(self.records)[_OF_STEP]
        rows = rows.dropna(subset=["local_step", "global_step", "time_unix"])
        names = pd.CategoricalDtype([worker.task for worker in self.workers])
        return rows.astype({"task": names, "local_step": "int64", "global_step": "int64"})

    @property
    def by_worker(self) -> DataFrameGroupBy[Any, Any]:
        """The steps of each worker, by index; a worker without steps has an empty group."""
        return self.steps.groupby("task", observed=False)

    def events(self, begin: str) -> pd.DataFrame:
        """The events whose message has this beginning."""
        is_event = self.records["kind"] == "event"
        return self.records[is_event & self.records["message"].str.startswith(begin, na=False)]

    @property
    def faults(self) -> set[str]:
        """The faults that were requested, or injected by `lab fault`, as `lab` writes them."""
        injected = self.events(DONE)["message"].str.removeprefix(DONE)
        return {*self.info.spec.faults, *injected}


_FREE: Final = frozenset({"seed", "record_every"})
"""Flags that a run may have otherwise than its recipe, unless the recipe names them."""
Chosen = dict[str, dict[int, MeasuredRun]]
"""The runs that claims may use: role to seed to run."""


def choose_runs(source: Source, runs: Sequence[MeasuredRun]) -> tuple[Chosen, dict[str, str]]:
    """Choose the runs that claims may use; also return the reason of each run that is left out.

    The order of `runs` decides which of two alike is kept, and which runs are more than the claim
    file asks for: their results cannot.

    Args:
        source: The claims.
        runs: The runs, in the order in which they were made.
    """
    chosen: Chosen = {role: {} for role in source.recipes}
    excluded: dict[str, str] = {}
    seen: dict[str, MeasuredRun] = {}
    for run in runs:
        role, misfit = _role(run, source)
        alike, most = chosen.get(role, {}), source.recipes[role].runs if role else 0
        seed = -1 if run.info.seed is None else run.info.seed
        first, twin = next(iter(alike.values()), run), alike.get(seed, run)
        # Two runs never have this in common; a run of `staleness` has results, but no steps.
        copied = seen.setdefault(repr((run.steps.to_numpy().tolist(), run.summary.results)), run)
        reasons = (
            (run.info.state is not State.SUCCEEDED, "it did not succeed"),
            (misfit, misfit),
            (run.info.seed is None, "its seed is not recorded"),
            (first.experiment != run.experiment,
             f"it is a run of {run.experiment}, the first one of {first.experiment}"),
            (twin is not run, f"it has the seed of run {twin.info.run_id}"),
            (copied is not run, f"it has the records of run {copied.info.run_id}"),
            (len(alike) == most,
             f"the claim file asks for {most} runs, and there are already that many"),
        )  # fmt: skip
        reason = next((text for applies, text in reasons if applies), None)
        if reason is None:
            alike[seed] = run
        else:
            excluded[run.info.run_id] = reason
    return chosen, excluded


def _role(run: MeasuredRun, source: Source) -> tuple[str, str]:
    """The role whose recipe a run follows best, and the first difference from it, or ""."""
    asked = [
        (role, _differences(run, wanted))
        for role, recipe in source.recipes.items()
        for wanted in (recipe.variant(quick=False), recipe.variant(quick=True))
        if wanted.experiment == run.experiment
    ]
    nothing = ("", [f"no claim is about a run of {run.experiment}"])
    role, differences = min(asked, key=lambda each: len(each[1]), default=nothing)
    return role, next(iter(differences), "")


def _differences(run: MeasuredRun, recipe: Recipe) -> list[str]:
    """What a run has otherwise than a recipe of its experiment."""
    experiment, default = EXPERIMENTS[recipe.experiment], "the default"
    wanted = with_defaults(experiment, (*experiment.args, *recipe.args))
    # A flag that was not recorded had its default.
    flags = {**with_defaults(experiment, ()), **run.info.hyperparameters}
    differences = [
        f"its {name} is {flags.get(name, default)}, not {wanted.get(name, default)}"
        for name in sorted((wanted | flags).keys() - (_FREE - recipe.flags.keys()))
        if flags.get(name) != wanted.get(name)
    ]
    workers = len(run.workers)
    if not workers or recipe.workers not in {None, workers}:
        differences.append(f"no claim needs a run with {counted(workers, 'worker')}")
    if (dict(run.info.spec.start), run.faults) != (recipe.start, set(recipe.faults)):
        differences.append("no claim needs a run with its faults and late tasks")
    return differences
