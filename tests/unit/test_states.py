"""The states of a task and of a run."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.volume.states import (
    FOLLOWS,
    State,
    WrongTransitionError,
    check,
    run_state,
)

ROOT = Path(__file__).parents[2]


@given(before=st.sampled_from(State), after=st.sampled_from(State))
def test_unknown_transitions_are_refused(before: State, after: State) -> None:
    known = after is before or after in FOLLOWS[before]
    refused = pytest.raises(WrongTransitionError, match=f"{after.value} cannot follow")
    with contextlib.nullcontext() if known else refused:
        check(before, after)


@pytest.mark.parametrize(
    ("of_tasks", "state"),
    [
        ("pending pending", "pending"),
        ("pending starting", "starting"),
        ("ready starting", "starting"),
        ("ready ready", "ready"),
        ("ready training", "training"),
        ("succeeded pending", "training"),
        ("succeeded succeeded", "succeeded"),
        ("succeeded cancelled", "cancelled"),
        ("lost cancelled", "lost"),
        ("lost failed", "failed"),
        ("", "pending"),
    ],
)
def test_state_of_a_run(of_tasks: str, state: str) -> None:
    assert run_state(map(State, of_tasks.split())) is State(state)


def test_the_architecture_page_has_the_table() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` → \| (.*) \|$", text, re.MULTILINE))
    wanted = {
        state.value: ", ".join(f"`{after.value}`" for after in State if after in FOLLOWS[state])
        or "nothing"
        for state in State
    }
    assert rows == wanted
