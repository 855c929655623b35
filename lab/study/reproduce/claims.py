"""Load the claims of a source from its file in `data/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from ruamel.yaml import YAML

DATA: Final = Path(__file__).parent / "data"

NAMES: Final = ("book-async", "book-sync", "blog-async", "blog-sync", "staleness")
"""The names of the results that can be reproduced."""

ALL: Final = "all"

Kind = Literal["measured", "qualitative", "fitted", "setting", "check"]

KINDS: Final[Mapping[Kind, str]] = {
    "measured": "numbers that the source measured",
    "qualitative": "statements without a number",
    "fitted": "not counted: numbers that follow from a fitted parameter",
    "setting": "not counted: settings of the program",
    "check": "not counted: checks",
}
"""The printed name of each kind, in the order in which they are shown."""

COUNTED: Final[Mapping[Kind, str]] = {"measured": "measured number", "qualitative": "statement"}
"""The kinds that are evidence, and that decide the exit code; the noun of their counts."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a source, or a check.

    Attributes:
        id: Its name, unique in the file: `global-step.worker-0.epoch-9`.
        text: The claim as a text for users.
        kind: Its kind: a key of `KINDS`.
        where: The place in the source; for a check, the fact that it follows from.
        measure: A name in `lab.runner.store.measures`, of the run or of the worker in `keys`; or
            one in `lab.study.reproduce.measures`.
        value: The printed value, or the expected value of a setting or a check; or None.
        unit: The unit of the value.
        role: The role of the runs that the claim is evaluated on.
        scale: `linear`, or `log` for positive values whose spread grows with them.
        matters: The deviation that matters: a difference, or a factor on the log scale.
        fault: The known fault that causes such a deviation.
        direction: `above` or `below`: the side of `effect` on which the statement holds.
        effect: The smallest effect of interest of a statement.
        margin: The largest difference from the NumPy reference that is called equivalent.
        keys: Arguments of the measure: worker, local_step, steps.
        beside: Further runs that the measure takes: argument to role; each has the run's seed.
    """

    id: str
    text: str
    kind: Kind
    where: str
    measure: str
    value: float | None = None
    unit: str = ""
    role: str = "whole"
    scale: Literal["linear", "log"] = "linear"
    matters: float | None = None
    fault: str = ""
    direction: Literal["above", "below", ""] = ""
    effect: float = 0.0
    margin: float | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_own(self) -> bool:
        """Whether its verdict is OK or FAILED, not REPRODUCED: a setting or a check."""
        return self.kind in {"setting", "check"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make the runs of a role.

    Attributes:
        experiment: The experiment.
        quick: The experiment with `--quick`.
        runs: The number of runs, each with its own seed.
        flags: The program's flags.
        quick_flags: The flags that `--quick` adds or changes.
        start: The start of each late task.
        faults: The faults, a line each.
        in_quick: Whether `--quick` makes these runs.
        workers: The number of workers; None: as in the cluster config.
        fitted: The parameters that were fitted to the source; claims on such runs are not counted.
    """

    experiment: str
    quick: str
    runs: int
    flags: Mapping[str, Any] = field(default_factory=dict)
    quick_flags: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, str] = field(default_factory=dict)
    faults: Sequence[str] = ()
    in_quick: bool = True
    workers: int | None = None
    fitted: Sequence[str] = ()

    @property
    def args(self) -> tuple[str, ...]:
        """The flags as arguments of the program."""
        return tuple(f"--{name}={value}" for name, value in self.flags.items())

    def variant(self, *, quick: bool) -> Recipe:
        """The recipe itself, or the one with `--quick`."""
        flags = {**self.flags, **self.quick_flags}
        return replace(self, experiment=self.quick, flags=flags) if quick else self


@dataclass(frozen=True, slots=True)
class Source:
    """All claims about one training.

    Attributes:
        name: Its name in `lab reproduce`.
        title: The source, and which of its trainings this is.
        recipes: How to make its runs, by role.
        claims: The claims, in the order in which they are shown.
    """

    name: str
    title: str
    recipes: Mapping[str, Recipe]
    claims: tuple[Claim, ...]


def load(name: str) -> Source:
    """Load a source and its claims; `name` is one of `NAMES`."""
    raw: dict[str, Any] = YAML(typ="safe", pure=True).load(DATA / f"{name}.yaml")
    recipes = {
        role: Recipe(**{"runs": raw["runs"], "quick": own["experiment"], **own})
        for role, own in raw["roles"].items()
    }
    return Source(name, raw["title"], recipes, tuple(Claim(**own) for own in raw["claims"]))
