"""The runs that a source needs, and the role of an existing run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lab.reproduce.claims import WHOLE, Recipe, Source
from lab.reproduce.run_metrics import RunMetrics
from lab.sweep.grid import Point
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.faults import parse
from lab.task.protocol.trigger import Trigger, parse_trigger

MODES: Final[Mapping[str, str]] = {
    "async": "async",
    "async-fast": "async",
    "async-unrolled": "async",
    "sync": "sync",
    "sync-fast": "sync",
    "async-mlp": "async-mlp",
    "sync-mlp": "sync-mlp",
    "staleness": "staleness",
}
"""The training mode of each experiment; claims hold for all experiments of a mode."""

_ROLE: Final = "run"

Length = tuple[str, int]
"""The unit of a training's length, and its value."""


def recipe_for(recipe: Recipe, *, quick: bool) -> Recipe:
    """The recipe of a role, or its quick variant."""
    if not quick:
        return recipe
    flags = {**recipe.flags, **recipe.quick_flags}
    return replace(recipe, experiment=recipe.quick, flags=flags)


def worker_counts(source: Source) -> list[int | None]:
    """The numbers of workers of a source's runs; each number needs its own environment."""
    return list(dict.fromkeys(recipe.workers for recipe in source.recipes.values()))


def points(source: Source, repeats: int, workers: int | None = None) -> list[Point]:
    """The runs with this number of workers: each role once, then all again for each repeat."""
    return [
        Point({_ROLE: role}, repeat)
        for repeat in range(repeats)
        for role, recipe in source.recipes.items()
        if recipe.workers == workers and (recipe.repeats is None or repeat < recipe.repeats)
    ]


def role_of_point(point: Point) -> str:
    """The role of a run that will be made."""
    return point.values[_ROLE]


def role_of_run(run: RunMetrics, source: Source) -> str | None:
    """The role of a run for a source; None: no claim is about such a run.

    The claims themselves check the flags of the run with the role WHOLE, so these flags may differ
    from the recipe. A run of any other role must match its recipe.
    """
    try:
        start = _start_times(run.start)
        faults = frozenset(map(parse, run.faults))
    except ValueError:  # lab did not write this run.json
        return None
    for role, recipe in source.recipes.items():
        if MODES.get(run.experiment) != MODES[recipe.experiment]:
            continue
        if recipe.workers not in {None, len(run.workers)}:
            continue
        if role == WHOLE:
            fits = not faults and not any(when.seconds is not None for when in start.values())
        else:
            fits = (
                start == _start_times(recipe.start)
                and faults == frozenset(map(parse, recipe.faults))
                and any(_has_flags(run, recipe_for(recipe, quick=quick)) for quick in (False, True))
            )
        if fits:
            return role
    return None


def firsts(runs: Sequence[RunMetrics]) -> list[RunMetrics]:
    """For each run, the first one with its seed and its records: itself, unless it is a copy.

    Records have times, so only copies with another id are alike. Runs without a step are none.
    """
    found: dict[str, RunMetrics] = {}
    return [
        found.setdefault(repr(replace(run, run_id="")), run)
        if any(worker.steps for worker in run.workers)
        else run
        for run in runs
    ]


def common_lengths(source: Source, runs: Mapping[str, Sequence[RunMetrics]]) -> dict[str, Length]:
    """The length of each role's runs that can be evaluated together.

    If a run has the source's length, and a quick one has another, all roles need it: some claims
    compare the runs of two roles.
    """
    full = {role: planned_length(recipe.flags) for role, recipe in source.recipes.items()}
    quick = {
        role: planned_length(recipe_for(recipe, quick=True).flags)
        for role, recipe in source.recipes.items()
    }
    found = {role: {planned_length(run.parameters) for run in runs[role]} for role in runs}
    is_full = any(full[role] in found[role] and full[role] != quick[role] for role in found)
    return {
        role: full[role] if is_full or full[role] in lengths else max(lengths)
        for role, lengths in found.items()
    }


def planned_length(flags: Mapping[str, Any]) -> Length:
    """The length of a training by its flags: its unit, global steps or epochs, and its value."""
    for name in ("global_steps", "epochs"):
        value = flags.get(name)
        if value and isinstance(value, int):
            return name.replace("_", " "), value
    return "epochs", 0


def _start_times(start: Mapping[str, str]) -> dict[str, Trigger]:
    return {task: parse_trigger(moment) for task, moment in start.items()}


def _has_flags(run: RunMetrics, recipe: Recipe) -> bool:
    known = EXPERIMENTS[recipe.experiment].flags
    return all(
        run.parameters.get(name) == known[name].parse(str(value))
        for name, value in recipe.flags.items()
    )
