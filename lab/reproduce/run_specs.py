"""Which runs a source needs, and which role an existing run has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lab.reproduce.claims import WHOLE, Recipe, Source
from lab.reproduce.run_metrics import RunFigures
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
"""Experiment to what it trains, and how: those with the same answer to the same claims."""

_ROLE: Final = "run"


def recipe_for(recipe: Recipe, *, quick: bool) -> Recipe:
    """How the runs of a role are made: as the recipe says, or quickly."""
    if not quick:
        return recipe
    flags = {**recipe.flags, **recipe.quick_flags}
    return replace(recipe, experiment=recipe.quick, flags=flags)


def worker_counts(source: Source) -> list[int | None]:
    """The numbers of workers that a source's runs have; each needs an environment of its own."""
    return list(dict.fromkeys(recipe.workers for recipe in source.recipes.values()))


def points(source: Source, repeats: int, workers: int | None = None) -> list[Point]:
    """The runs with this number of workers, each kind once before any comes twice."""
    return [
        Point({_ROLE: role}, repeat)
        for repeat in range(repeats)
        for role, recipe in source.recipes.items()
        if recipe.workers == workers and (recipe.repeats is None or repeat < recipe.repeats)
    ]


def role_of_point(point: Point) -> str:
    """The role of a run that is to be made."""
    return point.values[_ROLE]


def role_of_run(run: RunFigures, source: Source) -> str | None:
    """The role that a run has for a source; None: no claim is about it.

    The claims themselves check the flags of the whole run, so these may differ from the recipe.
    A run of any other role must match its recipe: another slowdown gives other results.
    """
    try:
        start = _start_times(run.start)
        faults = frozenset(map(parse, run.faults))
    except ValueError:  # a run.json that no lab has written
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


def _has_flags(run: RunFigures, recipe: Recipe) -> bool:
    known = EXPERIMENTS[recipe.experiment].flags
    return all(
        run.parameters.get(name) == known[name].parse(str(value))
        for name, value in recipe.flags.items()
    )
