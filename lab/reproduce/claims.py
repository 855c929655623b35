"""Load the claims of a source from its file in `data/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from ruamel.yaml import YAML

DATA: Final = Path(__file__).parent / "data"

NAMES: Final = ("book-async", "book-sync", "blog-async", "blog-sync", "staleness")
"""The names of the results that can be reproduced."""

ALL: Final = "all"
WHOLE: Final = "whole"
"""The role of the run that the source describes; runs of other roles serve single claims."""

Better = Literal["high", "low", ""]

Group = Literal["independent", "fitted", "own", "uncounted"]
"""The group in which a claim is counted."""

GROUPS: Final[Mapping[Group, str]] = {
    "independent": "independent claims",
    "fitted": "claims that follow from a fitted start",
    "own": "checks of our own",
    "uncounted": "not counted",
}
"""The printed name of each group, in the order in which they are shown."""

SOURCES: Final[Mapping[str, str]] = {
    "book": "Mastering TensorFlow 1.x (Packt, 2018), chapter 15",
    "four-machines": "the post of 2017 on one server as four machines",
    "mechanisms": "the post on all mechanisms of distributed TensorFlow",
    "lab": "this project",
}
"""The authors of claims; `lab` has the checks of our own."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of a source, or a check of our own.

    Attributes:
        id: Its name, unique in the file: `global-step.worker-0.epoch-9`.
        words: The claim as a text for users.
        group: The group in which it is counted.
        source: The author: a key of `SOURCES`.
        where: The place in the source; for a check of our own, the fact that it follows from.
        measure: The name of the measured quantity; `lab.reproduce.measures` defines them.
        value: The printed value; None if the source states it only in its text, or not at all.
        unit: The unit of the value.
        band: `exact`, `oracle`, `test`, `none`, or the allowed relative deviation from the value.
        better: The side on which a value outside the band is `TOO_GOOD`: `high`, `low`, or "".
        role: The role of the runs that the claim is evaluated on.
        note: A limit that a reader must know, or "".
        keys: The place in a run: worker, epoch, local step, updates.
    """

    id: str
    words: str
    group: Group
    source: str
    where: str
    measure: str
    value: float | None = None
    unit: str = ""
    band: str | float = "exact"
    better: Better = ""
    role: str = WHOLE
    note: str = ""
    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make the runs of a role.

    Attributes:
        role: Its name.
        experiment: The experiment.
        quick: The experiment with `--quick`.
        flags: The program's flags.
        quick_flags: The flags that `--quick` adds or changes.
        start: The start of each late task.
        faults: The faults, a line each.
        repeats: The most runs; None: as many as requested.
        workers: The number of workers; None: as in the cluster config.
    """

    role: str
    experiment: str
    quick: str
    flags: Mapping[str, Any] = field(default_factory=dict)
    quick_flags: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    repeats: int | None = None
    workers: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """All claims about one training.

    Attributes:
        name: Its name in `lab reproduce`.
        title: The source, and which of its trainings this is.
        reference: The mode of the NumPy reference to compare with, or "".
        recipes: How to make its runs, by role.
        claims: The claims, in the order in which they are shown.
    """

    name: str
    title: str
    reference: str
    recipes: Mapping[str, Recipe]
    claims: tuple[Claim, ...]


def load(name: str) -> Source:
    """Load a source and its claims; `name` is one of `NAMES`."""
    raw: dict[str, Any] = YAML(typ="safe", pure=True).load(DATA / f"{name}.yaml")
    recipes = {role: _recipe(role, each) for role, each in raw["runs"].items()}
    claims = tuple(claim for each in raw["claims"] for claim in _claims(each))
    return Source(name, raw["title"], raw.get("oracle", ""), recipes, claims)


def _recipe(role: str, raw: Mapping[str, Any]) -> Recipe:
    given = {"quick": raw["experiment"], **raw, "faults": tuple(raw.get("faults", ()))}
    return Recipe(role=role, **given)


_OWN: Final = {each.name for each in fields(Claim)} - {"id", "keys"}
_SHOWN: Final = {"worker": "worker-{}", "epoch": "epoch {}", "local_step": "step {:,}"}


def _claims(raw: Mapping[str, Any]) -> Iterator[Claim]:
    """Yield the claim, or a claim for each row if it has a table."""
    own = {name: raw[name] for name in _OWN if name in raw}
    rest = {name: raw[name] for name in raw if name not in {*_OWN, "id", "each", "rows"}}
    if "rows" not in raw:
        yield Claim(id=raw["id"], keys=rest, **own)
        return
    for row in raw["rows"]:
        yield _of_row(raw["id"], own, rest, dict(zip(raw["each"], row, strict=True)))


def _of_row(
    name: str, own: Mapping[str, Any], rest: Mapping[str, Any], row: Mapping[str, Any]
) -> Claim:
    keys = {key: value for key, value in row.items() if key != "value"}
    shown = [form.format(keys[key]) for key, form in _SHOWN.items() if key in keys]
    text = f"{own['words']}: {', '.join(shown).replace('worker-', 'w')}"
    place = ".".join(each.replace(" ", "-").replace(",", "") for each in shown)
    changed = {**own, "words": text, "value": row.get("value")}
    return Claim(id=f"{name}.{place}", keys={**rest, **keys}, **changed)
