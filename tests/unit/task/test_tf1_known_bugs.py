"""The known faults of printed synchronous programs: fixed in the source, recognized at run time."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType, FrameType, SimpleNamespace

import pytest

from lab.task.tf1 import known_bugs
from lab.task.tf1.known_bugs import (
    GIVE_UP_S,
    PATIENCE_S,
    Watch,
    uncall_operations,
    worker_ended_message,
)
from tests.support.fakes import Clock

UNCHANGED = ("a.get_init_tokens_op()", "chief_init_op()", "a.chief_init_op(1)", "a.b()")


@pytest.mark.parametrize(
    ("source", "text", "fixed"),
    [
        ("a = o.local_step_init_op()", "a = o.local_step_init_op", "line 1: local_step_init_op"),
        ("if c:\n    o.chief_init_op()", "if c:\n    o.chief_init_op", "line 2: chief_init_op"),
        *((text, text, "") for text in UNCHANGED),
    ],
)
def test_operations_are_no_longer_called(source: str, text: str, fixed: str) -> None:
    found: list[str] = []
    assert ast.unparse(uncall_operations(ast.parse(source), found.append)) == text
    told = f"fixed: {fixed} is an operation, called as if it were a function"
    assert found == ([told] if fixed else [])


SESSION = "/site-packages/tensorflow/python/client/session.py"


def inside(file: str, name: str, parameters: str = "", *values: object) -> FrameType:
    source = f"def {name}({parameters}):\n    import sys\n    return sys._getframe()\n"
    code: CodeType = compile(source, file, "exec")
    space: dict[str, Callable[..., FrameType]] = {}
    exec(code, space)  # noqa: S102
    return space[name](*values)


class Trial:
    """A watch with a clock and the set of ended tasks, and its reports."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock, self.cpu = Clock(), Clock()
        clocks = SimpleNamespace(monotonic=self.clock, process_time=self.cpu)
        patch.setattr(known_bugs, "time", clocks)
        self.ended: set[str] = set()
        self.told: list[str] = []
        self.left: list[str] = []
        patch.setattr(known_bugs, "exit_with_line", self.left.append)
        self.watch = Watch(self.told.append, is_synchronous=lambda: True, ended=lambda: self.ended)

    def after(self, seconds: float, frame: FrameType) -> None:
        self.clock.now += seconds
        self.watch.look(frame)


def test_a_worker_without_peers_reports_it_then_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    trial, waits = Trial(monkeypatch), inside(SESSION, "run")
    trial.ended = {"ps-0"}
    trial.after(0, waits)
    trial.after(PATIENCE_S, waits)
    assert trial.told == []  # Only a worker's gradients are missed.
    trial.ended = {"worker-2", "worker-1"}
    trial.after(1, waits)
    trial.after(1, waits)
    assert trial.told == [f"known fault: {worker_ended_message('worker-1')}"]
    trial.after(GIVE_UP_S, waits)
    assert trial.left == [f"KnownFaultError: {worker_ended_message('worker-1')}"]


@pytest.mark.parametrize("computes", [True, False])
def test_a_worker_that_computes_or_goes_on_is_not_suspected(
    computes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, waits = Trial(monkeypatch), inside(SESSION, "run")
    trial.ended = {"worker-1"}
    for _ in range(100):
        if computes:
            trial.cpu.now += 0.5
            trial.after(PATIENCE_S, waits)
        else:
            trial.after(PATIENCE_S / 2, inside(SESSION, "run"))
            trial.after(1, inside("program.py", "run"))
    assert (trial.told, trial.left) == ([], [])
