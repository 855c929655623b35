"""The runs that a source needs, and those of given runs that its claims may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from lab.analysis.grid import Point
from lab.experiments.faults import Trigger, parse, parse_trigger
from lab.experiments.registry import EXPERIMENTS, with_defaults
from lab.reproduce.claims import Recipe, Source
from lab.reproduce.metrics import RunMetrics, without_zeros

_ROLE: Final = "run"

_FREE: Final = frozenset({"seed", "record_every"})
"""Flags that a run may have otherwise than its recipe, unless the recipe names them."""


def recipe_for(recipe: Recipe, *, quick: bool) -> Recipe:
    """The recipe of a role, or its quick variant."""
    if not quick:
        return recipe
    return replace(recipe, experiment=recipe.quick, flags={**recipe.flags, **recipe.quick_flags})


def worker_counts(source: Source) -> list[int | None]:
    """The numbers of workers of a source's runs; each number needs its own environment."""
    return list(dict.fromkeys(recipe.workers for recipe in source.recipes.values()))


def points(
    source: Source, workers: int | None = None, *, quick: bool = False, most: int | None = None
) -> list[Point]:
    """The runs with this number of workers: each role once, then all again for each repeat.

    Args:
        source: The claims.
        workers: The number of workers.
        quick: Whether to leave out the long runs.
        most: The most runs of each role; None: as many as the claim file asks for.
    """
    recipes = {
        role: recipe
        for role, recipe in source.recipes.items()
        if recipe.workers == workers and (recipe.in_quick or not quick)
    }
    counts = {role: min(recipe.runs, most or recipe.runs) for role, recipe in recipes.items()}
    return [
        Point({_ROLE: role}, repeat)
        for repeat in range(max(counts.values(), default=0))
        for role in recipes
        if repeat < counts[role]
    ]


def role_of_point(point: Point) -> str:
    """The role of a run that will be made."""
    return point.values[_ROLE]


def choose_runs(
    source: Source, runs: Sequence[RunMetrics], exclude: Callable[[RunMetrics, str], None]
) -> dict[str, dict[int, RunMetrics]]:
    """Choose the runs of each role that claims may use: role to seed to run.

    The order of `runs` decides which of two alike is kept, and which runs are more than the claim
    file asks for: their results cannot.

    Args:
        source: The claims.
        runs: The runs, in the order in which they were made.
        exclude: Receives each run that is left out, and the reason.
    """
    full, quick = ([_role(run, source, quick=q) for run in runs] for q in (False, True))
    each = zip(runs, full, quick, strict=True)
    is_full = any(one and not other and run.succeeded for run, one, other in each)
    chosen: dict[str, dict[int, RunMetrics]] = {role: {} for role in source.recipes}
    seen: dict[str, str] = {}
    for run, role, as_quick in zip(runs, full if is_full else quick, quick, strict=True):
        records = repr((run.workers, run.results))  # a run of `staleness` records no steps
        first = seen.setdefault(records, run.run_id)
        if not run.succeeded:
            exclude(run, "it did not succeed")
        elif role is None:
            exclude(run, "it is a quick run beside full ones" if as_quick else _misfit(run, source))
        elif run.seed is None:
            exclude(run, "its seed is not recorded")
        elif run.seed in chosen[role]:
            exclude(run, f"it has the seed of run {chosen[role][run.seed].run_id}")
        elif first != run.run_id:
            exclude(run, f"it has the records of run {first}")
        elif len(chosen[role]) == (most := source.recipes[role].runs):
            exclude(run, f"the claim file asks for {most} runs, and there are as many earlier ones")
        else:
            chosen[role][run.seed] = run
    return chosen


def _role(run: RunMetrics, source: Source, *, quick: bool) -> str | None:
    """The role whose recipe a run follows; None: it follows no recipe."""
    try:
        start, faults = _start_times(run.start), frozenset(map(parse, _faults(run)))
    except ValueError:  # lab did not write this run.json
        return None
    for role, each in source.recipes.items():
        recipe = recipe_for(each, quick=quick)
        if (
            run.experiment == recipe.experiment
            and run.workers
            and recipe.workers in {None, len(run.workers)}
            and start == _start_times(recipe.start)
            and faults == frozenset(map(parse, recipe.faults))
            and _odd_flag(run, recipe) is None
        ):
            return role
    return None


def _misfit(run: RunMetrics, source: Source) -> str:
    """Why a run follows no recipe, as far as it is known."""
    same = [r for r in source.recipes.values() if run.experiment in {r.experiment, r.quick}]
    if not same:
        return f"no claim is about a run of {run.experiment}"
    if (faults := _faults(run)) and not any(recipe.faults for recipe in same):
        return f"no claim wants the fault {faults[0]!r}"
    recipe = recipe_for(same[0], quick=run.experiment != same[0].experiment)
    if (name := _odd_flag(run, recipe)) is not None:
        both = _parameters(run, recipe), _flags(recipe)
        mine, wanted = (each.get(name, "the default") for each in both)
        return f"its {name} is {mine}, not {wanted}"
    return "its start, faults or number of workers is that of no claim"


def _start_times(start: Mapping[str, str]) -> dict[str, Trigger]:
    return {task: parse_trigger(moment) for task, moment in start.items()}


def _faults(run: RunMetrics) -> list[str]:
    """The faults that were requested, and those that `lab fault` injected."""
    return [*run.faults, *(fault for worker in run.workers for fault in worker.faults)]


def _flags(recipe: Recipe) -> dict[str, Any]:
    """All flags of a recipe's runs."""
    known = EXPERIMENTS[recipe.experiment]
    args = (*known.args, *(f"--{name}={value}" for name, value in recipe.flags.items()))
    return without_zeros(with_defaults(known, args))


def _odd_flag(run: RunMetrics, recipe: Recipe) -> str | None:
    """A flag of the run that is not as in the recipe, or None."""
    wanted, mine = _flags(recipe), _parameters(run, recipe)
    compared = (wanted.keys() | mine.keys()) - (_FREE - recipe.flags.keys())
    return next((name for name in sorted(compared) if mine.get(name) != wanted.get(name)), None)


def _parameters(run: RunMetrics, recipe: Recipe) -> dict[str, Any]:
    """The flags of a run. One that it did not record had its default."""
    return {**without_zeros(with_defaults(EXPERIMENTS[recipe.experiment], ())), **run.parameters}
