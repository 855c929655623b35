"""JSON that leaves the project: strict, and read back as it was."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.strict_json import dump, parse

WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.floats() | WHOLE | st.none() | st.booleans()
NAMES = st.text(max_size=8).filter(lambda name: not name.endswith("_is"))
VALUES = st.recursive(
    NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


def refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_any_object_is_strict_json(value: dict[str, object]) -> None:
    text = dump(value)
    json.loads(text, parse_constant=refuse)
    # The number in a list is only for people.
    if not any(_has_no_number(each) for each in _values(value)):
        assert same(parse(text), value)


def _values(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(each for one in inner for each in _values(one))]


def _has_no_number(value: object) -> bool:
    return isinstance(value, list) and any(
        isinstance(each, float) and not math.isfinite(each) for each in value
    )


def test_the_field_beside_a_number_says_which_one_it_was() -> None:
    value = {"loss": math.nan, "rates": [1.0, math.inf, -math.inf], "state": "failed"}
    assert json.loads(dump(value)) == {
        "loss": None,
        "rates": [1.0, None, None],
        "state": "failed",
        "loss_is": "nan",
        "rates_is": {"1": "inf", "2": "-inf"},
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON"),
        ("[1]", "its JSON is not an object"),
        ("{" * 9 + "}" * 9, "it is not JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 5_000 + "}", "it is not JSON"),
        (f'{{"a": [{2**63}]}}', "a whole number does not fit into 64 bits"),
        (f'{{"a": {-(2**63) - 1}}}', "a whole number does not fit into 64 bits"),
    ],
)
def test_invalid_objects(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text)


@pytest.mark.parametrize(
    "value",
    [
        {"loss": 1.0, "loss_is": "nan"},
        {"loss_is": "nan"},
        {"loss": None, "loss_is": "high"},
        {"loss": None, "loss_is": {"0": "nan"}},
        {"loss": [None], "loss_is": {"0": "nan"}},
    ],
)
def test_a_similar_field_stays(value: dict[str, object]) -> None:
    assert parse(json.dumps(value)) == value
