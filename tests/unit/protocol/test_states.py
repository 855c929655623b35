"""The states of a task and of a run."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.protocol.volume.states import (
    FOLLOWS,
    State,
    WrongTransitionError,
    check,
)

ROOT = Path(__file__).parents[3]


@given(before=st.sampled_from(State), after=st.sampled_from(State))
def test_unknown_transitions_are_refused(before: State, after: State) -> None:
    known = after is before or after in FOLLOWS[before]
    refused = pytest.raises(WrongTransitionError, match=f"{after.value} cannot follow")
    with contextlib.nullcontext() if known else refused:
        check(before, after)


def test_the_architecture_page_has_the_table() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` → \| (.*) \|$", text, re.MULTILINE))
    wanted = {
        state.value: ", ".join(f"`{after.value}`" for after in State if after in FOLLOWS[state])
        or "nothing"
        for state in State
    }
    assert rows == wanted
