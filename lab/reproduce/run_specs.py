"""The runs that a source needs, and the role of an existing run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

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


def _start_times(start: Mapping[str, str]) -> dict[str, Trigger]:
    return {task: parse_trigger(moment) for task, moment in start.items()}


def _has_flags(run: RunMetrics, recipe: Recipe) -> bool:
    known = EXPERIMENTS[recipe.experiment].flags
    return all(
        run.parameters.get(name) == known[name].parse(str(value))
        for name, value in recipe.flags.items()
    )
