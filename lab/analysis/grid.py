"""The points of a sweep, such as `workers=1,2,4; learning_rate=0.1,1`, and their results."""

from __future__ import annotations

import itertools
import math
from argparse import ArgumentTypeError
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lab.config.model import MAX_TASKS
from lab.errors import InputError
from lab.experiments.registry import Experiment
from lab.store.measures import run_quantities
from lab.store.summary import Summary
from lab.text import short, suggestion
from lab.volume.states import State

WORKERS: Final = "workers"
"""The only parameter that is not a program flag: the number of tasks of job `worker`."""

_FORM: Final = "NAME=VALUE,VALUE; …, such as workers=1,2,4; learning_rate=0.1,1"

METRICS: Final = ("accuracy", "images/s", "global steps/s")
"""The measures of a sweep, by their labels; `lab.store.measures` has all."""

Over = Mapping[str, tuple[str, ...]]
"""Parameter to its values, as the user typed them and in that order."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a sweep.

    Attributes:
        values: The value of each parameter.
        repeat: 0 for the first run with these values.
    """

    values: Mapping[str, str]
    repeat: int

    @property
    def workers(self) -> int | None:
        """The number of workers; None: as in the config."""
        text = self.values.get(WORKERS)
        return None if text is None else int(text)

    @property
    def flags(self) -> tuple[str, ...]:
        """Its arguments for the program."""
        return tuple(f"--{name}={text}" for name, text in self.values.items() if name != WORKERS)

    def line(self) -> str:
        """Return its values in one line: `workers=4 learning_rate=1`."""
        return " ".join(f"{name}={text}" for name, text in self.values.items())


def parse_over(text: str) -> dict[str, tuple[str, ...]]:
    """Parse `workers=1,2,4; learning_rate=0.1,1`.

    Raises:
        ValueError: The text does not have this form.
    """
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, equals, several = part.partition("=")
        name, values = name.strip(), tuple(each.strip() for each in several.split(","))
        if not equals or not name or not all(values) or name in found:
            raise ValueError(_FORM)
        found[name] = values
    if not found:
        raise ValueError(_FORM)
    return found


def check_over(over: Over, experiment: Experiment, fixed: Collection[str]) -> None:
    """Check that a sweep fits an experiment.

    Args:
        over: The parameters and their values.
        experiment: The experiment.
        fixed: The flags that the user gave for all runs.

    Raises:
        InputError: A parameter is unknown, or a value is invalid.
    """
    known = [WORKERS, *experiment.flags]
    for name, values in over.items():
        if name not in known:
            hint = suggestion(name, known)
            raise InputError(
                f"--over: experiment {experiment.name!r} has no flag {short(name)!r}",
                f"{hint}see `lab experiments {experiment.name}`, or use {WORKERS}",
            )
        if name == "seed":
            raise InputError(
                "--over: each repeat has its own seed", "leave out seed, and use --repeats"
            )
        if name in fixed:
            raise InputError(f"--{name} is given, but --over varies it", "leave out one of them")
        if len({_parse_value(name, text, experiment) for text in values}) < len(values):
            raise InputError(f"--over: {name} has a value twice", "leave out one of them")


def _parse_value(name: str, text: str, experiment: Experiment) -> object:
    """Return the value that the program parses: 1 and 1.0 are the same rate."""
    if name == WORKERS:
        plain = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_TASKS))
        if not plain or not 1 <= int(text) <= MAX_TASKS or text != str(int(text)):
            raise InputError(
                f"--over: {WORKERS}={short(text)!r} is not a number of workers",
                f"give 1 to {MAX_TASKS:,}",
            )
        return int(text)
    try:
        return experiment.flags[name].parse(text)
    except (ValueError, ArgumentTypeError) as error:
        raise InputError(
            f"--over: {name}: {error}", f"see `lab experiments {experiment.name}`"
        ) from None


def grid(over: Over, repeats: int) -> list[Point]:
    """Return all points; points with the same number of workers share an environment.

    Within these, each combination comes once before any comes twice. So an interrupted sweep has
    results for all combinations.
    """
    worker_counts: tuple[str | None, ...] = over.get(WORKERS, (None,))
    rest = {name: values for name, values in over.items() if name != WORKERS}
    found = []
    for workers, repeat in itertools.product(worker_counts, range(repeats)):
        for combination in itertools.product(*rest.values()):
            chosen = dict(zip(rest, combination, strict=True))
            if workers is not None:
                chosen[WORKERS] = workers
            found.append(Point({name: chosen[name] for name in over}, repeat))
    return found


def combinations(points: Sequence[Point]) -> list[dict[str, str]]:
    """Return the distinct combinations of values, in the order of the points."""
    return list(map(dict, dict.fromkeys(tuple(point.values.items()) for point in points)))


@dataclass(frozen=True, slots=True)
class RunResult:
    """One ended run of a sweep.

    Attributes:
        point: Its point of the grid.
        summary: Its summary.
    """

    point: Point
    summary: Summary

    @property
    def succeeded(self) -> bool:
        """Whether the run succeeded; only then its metrics count."""
        return self.summary.state == State.SUCCEEDED

    @property
    def diverged(self) -> bool:
        """Whether its loss or another metric is NaN or infinite."""
        has_lost = any(task.diverged_at is not None for task in self.summary.tasks)
        return has_lost or not all(map(math.isfinite, self._measured().values()))

    def metrics(self) -> dict[str, float]:
        """Return its finite metrics: its results, the test accuracy, and its speed.

        NaN and infinities are left out, because they have no mean.
        """
        found = self._measured()
        return {name: value for name, value in found.items() if math.isfinite(value)}

    def _measured(self) -> dict[str, float]:
        measured = {each.name: each.value for each in self.summary.results}
        quantities = {label: value for label, value, _ in run_quantities(self.summary)}
        measured |= {label: quantities[label] for label in METRICS if label in quantities}
        return {name: value for name, value in measured.items() if value is not None}


def metric_names(results: Sequence[RunResult]) -> list[str]:
    """Return the names of the metrics of all runs, in order of appearance."""
    return list(dict.fromkeys(name for each in results for name in each.metrics()))
