"""Which runs a source needs, and which of its kinds a run that exists already is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lab.reproduce.claims import Recipe, Source
from lab.reproduce.figures import RunFigures
from lab.sweep.grid import Point
from lab.task.when import parse_when

MODES: Final[Mapping[str, str]] = {
    "async": "async",
    "async-fast": "async",
    "async-unrolled": "async",
    "sync": "sync",
    "sync-fast": "sync",
    "async-mlp": "async-mlp",
    "sync-mlp": "sync-mlp",
}
"""Experiment to what it trains, and how: those with the same answer to the same claims."""

_ROLE: Final = "run"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One kind of run, as it is made.

    Attributes:
        experiment: The experiment.
        flags: The program's flags, without the seed.
        start: Task to the moment at which it starts.
        faults: What is done to it, a line each.
    """

    experiment: str
    flags: Mapping[str, Any]
    start: Mapping[str, str]
    faults: tuple[str, ...]

    def argv(self, seed: int) -> tuple[str, ...]:
        """The words for its program."""
        words = {**self.flags, "seed": seed}
        return tuple(f"--{name}={value}" for name, value in words.items())


def wanted(recipe: Recipe, *, quick: bool) -> Wanted:
    """How the runs of a role are made."""
    if not quick:
        return Wanted(recipe.experiment, recipe.flags, recipe.start, recipe.faults)
    flags = {**recipe.flags, **recipe.quick_flags}
    return Wanted(recipe.quick, flags, recipe.start, recipe.faults)


def points(source: Source, repeats: int) -> list[Point]:
    """All runs of a source, each kind once before any comes twice."""
    return [
        Point({_ROLE: role}, repeat)
        for repeat in range(repeats)
        for role, recipe in source.recipes.items()
        if recipe.repeats is None or repeat < recipe.repeats
    ]


def role_of_point(point: Point) -> str:
    """The role of a run that is to be made."""
    return point.values[_ROLE]


def role_of_run(run: RunFigures, source: Source) -> str | None:
    """The role that a run has for a source; None: it answers to none of its claims."""
    try:
        mine = _kind(run.experiment, run.start, run.faults)
    except ValueError:  # a run.json that no lab has written
        return None
    for role, recipe in source.recipes.items():
        if mine == _kind(recipe.experiment, recipe.start, recipe.faults):
            return role
    return None


def _kind(
    experiment: str, start: Mapping[str, str], faults: Sequence[str]
) -> tuple[str | None, bool, bool]:
    """What it trains; whether a task comes after a time; whether one is slowed."""
    late = any(parse_when(moment).seconds is not None for moment in start.values())
    return MODES.get(experiment), late, any(fault.startswith("slow") for fault in faults)
