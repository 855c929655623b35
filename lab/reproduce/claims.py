"""The claims of a source, from its file in `data/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from ruamel.yaml import YAML

DATA: Final = Path(__file__).parent / "data"

NAMES: Final = ("book-async", "book-sync", "blog-async", "blog-sync", "staleness")
"""The results that can be reproduced."""

ALL: Final = "all"
WHOLE: Final = "whole"
"""The role of the run that the source tells of; the other ones serve single claims."""

Better = Literal["high", "low", ""]

Group = Literal["independent", "fitted", "own", "uncounted"]
"""What a claim counts as."""

GROUPS: Final[Mapping[Group, str]] = {
    "independent": "independent claims",
    "fitted": "claims that follow from a fitted start",
    "own": "checks of our own",
    "uncounted": "not counted",
}
"""Group to its name, in the order in which they are shown."""

SOURCES: Final[Mapping[str, str]] = {
    "book": "Mastering TensorFlow 1.x (Packt, 2018), chapter 15",
    "four-machines": "the post of 2017 on one server as four machines",
    "mechanisms": "the post on all mechanisms of distributed TensorFlow",
    "lab": "this project",
}
"""Who makes a claim; `lab` makes the checks of our own."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that a source states, or that we check.

    Attributes:
        id: Its name, unique in the file: `global-step.worker-0.epoch-9`.
        words: It in words.
        group: What it counts as.
        source: Who states it: a key of `SOURCES`.
        where: The place in the source; of a check of our own, what it follows from.
        measure: The name of what is measured of the runs; `lab.reproduce.measures` has them.
        value: What the source prints; None where it says so in words, or prints nothing.
        unit: Of the value.
        band: `exact`, `oracle`, `test`, `none`, or the share of the value that it may be off.
        better: On which side a value would be better than it can be: `high`, `low`, or "".
        role: Of the runs that answer to it.
        note: A limit that a reader must know, or "".
        keys: What of a run is meant: worker, epoch, local step, updates.
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
    """How the runs of a role are made.

    Attributes:
        role: Its name.
        experiment: What is run.
        quick: What is run by `--quick`.
        flags: The program's flags.
        quick_flags: Those that `--quick` adds, or changes.
        start: Task to the moment at which it starts.
        faults: What is done to it, a line each.
        repeats: How often at most; None: as often as is asked for.
        workers: How many workers it has; None: as many as the cluster config has.
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
        name: What `lab reproduce` calls it.
        title: Which training of which source it is.
        reference: The oracle's training that has the same mode, or "".
        recipes: How its runs are made, by role.
        claims: In the order in which they are shown.
    """

    name: str
    title: str
    reference: str
    recipes: Mapping[str, Recipe]
    claims: tuple[Claim, ...]


def load(name: str) -> Source:
    """Read the claims of a source; `name` is one of `NAMES`."""
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
    """One claim, or one for each row of a table."""
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
    arguments = f"{own['words']}: {', '.join(shown).replace('worker-', 'w')}"
    place = ".".join(each.replace(" ", "-").replace(",", "") for each in shown)
    changed = {**own, "words": arguments, "value": row.get("value")}
    return Claim(id=f"{name}.{place}", keys={**rest, **keys}, **changed)
