"""The runs that a source needs, and those of given runs that its claims may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from lab.experiments.faults import Fault, Trigger, parse, parse_trigger
from lab.experiments.registry import EXPERIMENTS, with_defaults
from lab.formatting import counted
from lab.reproduce.claims import Recipe, Source
from lab.reproduce.metrics import RunMetrics, without_zeros

_FREE: Final = frozenset({"seed", "record_every"})
"""Flags that a run may have otherwise than its recipe, unless the recipe names them."""


def recipe_for(recipe: Recipe, *, quick: bool) -> Recipe:
    """The recipe of a role, or its quick variant."""
    if not quick:
        return recipe
    return replace(recipe, experiment=recipe.quick, flags={**recipe.flags, **recipe.quick_flags})


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
    for role, recipe in source.recipes.items():
        wanted = recipe_for(recipe, quick=quick)
        if run.experiment == wanted.experiment and not _differences(run, wanted):
            return role
    return None


def _misfit(run: RunMetrics, source: Source) -> str:
    """What differs from the recipe that the run follows best."""
    recipes = [recipe_for(r, quick=q) for r in source.recipes.values() for q in (False, True)]
    same = [_differences(run, each) for each in recipes if each.experiment == run.experiment]
    return min(same, key=len)[0] if same else f"no claim is about a run of {run.experiment}"


def _differences(run: RunMetrics, recipe: Recipe) -> list[str]:
    """What a run has otherwise than a recipe of its experiment."""
    wanted = _flags(recipe, *EXPERIMENTS[recipe.experiment].args, *recipe.args)
    flags = {**_flags(recipe), **run.parameters}  # one that was not recorded had its default
    default = "the default"
    differences = [
        f"its {name} is {flags.get(name, default)}, not {wanted.get(name, default)}"
        for name in sorted((wanted.keys() | flags.keys()) - (_FREE - recipe.flags.keys()))
        if flags.get(name) != wanted.get(name)
    ]
    if not run.workers or recipe.workers not in {None, len(run.workers)}:
        differences.append(f"no claim wants a run of {counted(len(run.workers), 'worker')}")
    if _events(run) != _events(recipe):
        differences.append("no claim wants a run with its faults and late tasks")
    return differences


def _flags(recipe: Recipe, *args: str) -> dict[str, Any]:
    """All flags of a recipe's experiment with these arguments."""
    return without_zeros(with_defaults(EXPERIMENTS[recipe.experiment], args))


def _events(run: RunMetrics | Recipe) -> tuple[dict[str, Trigger], set[Fault]] | None:
    """Late starts and faults; None: a text is neither, so `lab` did not write it."""
    try:
        starts = {task: parse_trigger(moment) for task, moment in run.start.items()}
        return starts, set(map(parse, run.faults))
    except ValueError:
        return None
