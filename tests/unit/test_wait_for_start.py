"""A program waits for the permission of its agent to train, and for the step at which it joins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab.task.sdk import program
from lab.task.sdk.program import wait_for_start


class Sleeps:
    """Replaces `time.sleep`: the events while the program sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.then: list[Callable[[], object]] = []
        self.seconds: list[float] = []
        monkeypatch.setattr(program.time, "sleep", self)

    def __call__(self, seconds: float) -> None:
        assert self.then, "it waits although all is there"
        self.seconds.append(seconds)
        self.then.pop(0)()


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> Sleeps:
    return Sleeps(monkeypatch)


@pytest.fixture
def start(tmp_path: Path) -> Path:
    return tmp_path / "start"


def nothing() -> None:
    """Time passes."""


def unasked() -> int:
    pytest.fail("the global step was asked for")


@pytest.mark.parametrize("environment", [{}, {"LAB_START": ""}, {"LAB_RUN_DIR": "/x"}])
def test_by_hand_nothing_is_waited_for(sleeps: Sleeps, environment: dict[str, str]) -> None:
    wait_for_start(unasked, environment)
    assert sleeps.seconds == []


def test_the_variable_of_the_process_counts(
    sleeps: Sleeps, start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_START", str(start))
    sleeps.then = [start.touch]
    wait_for_start()
    assert len(sleeps.seconds) == 1


def test_it_waits_until_the_file_exists(sleeps: Sleeps, start: Path) -> None:
    sleeps.then = [nothing, nothing, start.touch]
    wait_for_start(unasked, {"LAB_START": str(start)})
    assert len(sleeps.seconds) == 3
    assert all(0 < seconds <= 0.1 for seconds in sleeps.seconds)
    wait_for_start(unasked, {"LAB_START": str(start)})


def test_it_waits_for_the_file_first_and_then_for_its_step(sleeps: Sleeps, start: Path) -> None:
    steps = [0]

    def train() -> None:
        steps[0] += 40

    sleeps.then = [nothing, lambda: start.write_text("100"), train, train, train]
    wait_for_start(lambda: steps[0], {"LAB_START": str(start)})
    assert steps == [120]
    assert sleeps.then == []


@pytest.mark.parametrize("step", [100, 101])
def test_it_joins_at_its_step_and_at_any_later_one(sleeps: Sleeps, start: Path, step: int) -> None:
    start.write_text("100")
    wait_for_start(lambda: step, {"LAB_START": str(start)})
    assert sleeps.seconds == []


def test_a_program_that_knows_no_global_step_joins_at_once(sleeps: Sleeps, start: Path) -> None:
    start.write_text("100")
    wait_for_start(environment={"LAB_START": str(start)})
    assert sleeps.seconds == []
