"""Read runs, and choose those that the claims of a source may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import pandas as pd

from lab.experiments.faults import DONE, Fault, Trigger, parse, parse_trigger
from lab.experiments.registry import EXPERIMENTS, with_defaults
from lab.formatting import counted
from lab.reproduce.claims import Recipe, Source
from lab.store.dataframe import read_records, steps_of
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.store.summarize import summarize
from lab.store.summary import Summary, TaskSummary
from lab.volume.states import State

_FREE: Final = frozenset({"seed", "record_every"})
"""Flags that a run may have otherwise than its recipe, unless the recipe names them."""

_OF_STEP: Final = ["local_step", "global_step", "loss", "time_unix"]


@dataclass(frozen=True)
class MeasuredRun:
    """A run with its measures.

    Attributes:
        info: Its settings.
        summary: The measures of the run and of its tasks.
        records: The records of all workers, as `lab.store.dataframe` has them.
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
    def flags(self) -> dict[str, Any]:
        """The recorded hyperparameters that are not 0."""
        return without_zeros(self.info.hyperparameters)

    @property
    def workers(self) -> list[TaskSummary]:
        """The summary of each worker, by index."""
        return [task for task in self.summary.tasks if task.job_name == "worker"]

    @cached_property
    def steps(self) -> list[pd.DataFrame]:
        """The recorded steps of each worker: local and global step, loss and time."""
        rows = steps_of(self.records).dropna(subset=["local_step", "global_step", "time_unix"])
        rows = rows.astype({"local_step": "int64", "global_step": "int64"})
        return [rows.loc[rows["task"] == worker.task, _OF_STEP] for worker in self.workers]

    def events(self, begin: str) -> pd.DataFrame:
        """The events whose message has this beginning."""
        is_event = self.records["kind"] == "event"
        return self.records[is_event & self.records["message"].str.startswith(begin, na=False)]

    @property
    def faults(self) -> list[str]:
        """The faults that were requested, or injected by `lab fault`, a line each."""
        injected = self.events(DONE)["message"].str.removeprefix(DONE)
        return [*self.info.spec.faults, *injected]


def without_zeros(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags without those that are 0: the program's own default. False is a value."""
    return {name: value for name, value in flags.items() if value is False or value != 0}


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
    seen: dict[str, str] = {}
    for run in runs:
        run_id, seed = run.info.run_id, run.info.seed
        role, misfit = _role(run, source)
        alike = chosen.get(role, {})
        first = next(iter(alike.values()), run)
        copied = seen.setdefault(_content(run), run_id)
        if run.info.state is not State.SUCCEEDED:
            excluded[run_id] = "it did not succeed"
        elif misfit:
            excluded[run_id] = misfit
        elif seed is None:
            excluded[run_id] = "its seed is not recorded"
        elif first.experiment != run.experiment:
            excluded[run_id] = (
                f"it is a run of {run.experiment}, the first one of {first.experiment}"
            )
        elif seed in alike:
            excluded[run_id] = f"it has the seed of run {alike[seed].info.run_id}"
        elif copied != run_id:
            excluded[run_id] = f"it has the records of run {copied}"
        elif len(alike) == (most := source.recipes[role].runs):
            reason = f"the claim file asks for {most} runs, and there are as many earlier ones"
            excluded[run_id] = reason
        else:
            alike[seed] = run
    return chosen, excluded


def _content(run: MeasuredRun) -> str:
    """What two runs never have in common: a run of `staleness` records no steps, but results."""
    return repr(([each.to_numpy().tolist() for each in run.steps], run.summary.results))


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
    wanted = _flags(recipe, *EXPERIMENTS[recipe.experiment].args, *recipe.args)
    flags = {**_flags(recipe), **run.flags}  # one that was not recorded had its default
    default = "the default"
    differences = [
        f"its {name} is {flags.get(name, default)}, not {wanted.get(name, default)}"
        for name in sorted((wanted.keys() | flags.keys()) - (_FREE - recipe.flags.keys()))
        if flags.get(name) != wanted.get(name)
    ]
    workers = len(run.workers)
    if not workers or recipe.workers not in {None, workers}:
        differences.append(f"no claim wants a run of {counted(workers, 'worker')}")
    if _moments(run.info.spec.start, run.faults) != _moments(recipe.start, recipe.faults):
        differences.append("no claim wants a run with its faults and late tasks")
    return differences


def _flags(recipe: Recipe, *args: str) -> dict[str, Any]:
    """All flags of a recipe's experiment with these arguments."""
    return without_zeros(with_defaults(EXPERIMENTS[recipe.experiment], args))


def _moments(
    start: Mapping[str, str], faults: Iterable[str]
) -> tuple[dict[str, Trigger], set[Fault]] | None:
    """Late starts and faults; None: a text is neither, so `lab` did not write it."""
    try:
        return {task: parse_trigger(moment) for task, moment in start.items()}, {
            parse(line) for line in faults
        }
    except ValueError:
        return None
