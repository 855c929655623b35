"""Values that no file and no argument should hold, and changes to JSON that put them there."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**63, 10**400, 1e308, -1e308, float("nan"), float("inf")),
    *("", "x" * 100_000, "\x1b[31mred\x07", "two\nlines", "../../../etc/passwd"),
    *("<script>alert(1)</script>", "\ud800", "{}"),
    *([], {}, [[]], {"": None}, ["x"] * 1_000),
)


def deep(opening: str = "[", closing: str = "]") -> str:
    """JSON inside JSON, deeper than a parser calls itself."""
    return opening * 100_000 + closing * 100_000


def changed_json(text: str, rng: random.Random) -> str:
    """A JSON text with one change: to a value, a key, or the text itself."""
    how = rng.randrange(6)
    if how == 0:
        return text[: rng.randrange(len(text) + 1)]
    if how == 1:
        place = rng.randrange(len(text) + 1)
        return text[:place] + rng.choice('{}[]",:\\0e-.N\x00é') + text[place:]
    value = json.loads(text)
    if how == 2:
        return json.dumps(_with(value, "hole", rng)).replace(json.dumps("hole"), deep(), 1)
    return json.dumps(_with(value, copy.deepcopy(rng.choice(ODD)), rng, drop=how == 3))


def _with(value: Any, odd: Any, rng: random.Random, *, drop: bool = False) -> Any:
    """The same value with another one somewhere inside it, or with something missing."""
    places = list(_places(value))
    if not places:
        return odd
    inside, key = rng.choice(places)
    if drop:
        del inside[key]
    elif isinstance(inside, dict) and rng.random() < 0.1:
        inside[rng.choice(("odd", "", "\x1b", "format", "__class__"))] = odd
    else:
        inside[key] = odd
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside a value, with each of its keys."""
    if isinstance(value, dict | list):
        for key in [*value] if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _places(value[key])
