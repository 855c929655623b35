"""A run that is under way, in one line."""

from __future__ import annotations

import io
import sys
import types

import pytest

from lab.run import view
from lab.run.run_info import RunInfo
from lab.run.view import BriefView
from lab.task.protocol import RunSpec, TaskStatus
from lab.task.protocol.states import State
from tests.unit.fakes import record

INFO = RunInfo(
    run_id="r",
    spec=RunSpec(experiment="async"),
    cluster={"worker": ["a:1", "b:1"]},
    hyperparameters={"epochs": 9},
)


def test_the_line_shows_the_largest_step() -> None:
    view = BriefView(INFO, [].append, [].append)
    assert view.line(1.4) == "run r: pending, 1 s"
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.records("worker-0", [record("worker-0", 0, epoch=1, global_step=1200, loss=0.5)])
    view.records("worker-1", [record("worker-1", 0, epoch=0, global_step=900, loss=0.75)])
    assert view.line(2) == "run r: training, global step 1,200, epoch 2 of 9, loss 0.5000, 2 s"
    view.forget("worker-0")
    assert "global step 900" in view.line(3)


def test_it_changes_at_most_twice_a_second() -> None:
    now, drawn = [0.0], list[str]()
    view = BriefView(INFO, drawn.append, [].append, lambda: now[0])
    for moment in (0.1, 0.4, 0.6, 0.7, 1.2):
        now[0] = moment
        view.tick()
    assert drawn == ["run r: pending, 1 s", "run r: pending, 1 s"]


def test_a_notice_gets_a_line_of_its_own() -> None:
    order: list[str] = []
    BriefView(INFO, order.append, lambda line: order.append(f"said {line}")).notice("look")
    assert order == ["", "said look"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_narrow_terminal_shows_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    screen = Terminal()
    draw = view._draw_function(screen)
    draw("run r\x1b[2J and so on")
    draw("")
    assert screen.getvalue() == "\r\x1b[Krun r\\x1…\r\x1b[K"


def test_a_file_gets_none_of_it() -> None:
    file = io.StringIO()
    view._draw_function(file)("x")
    assert file.getvalue() == ""


def test_a_notebook_changes_one_piece_of_output(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, object]] = []

    class Handle:
        def update(self, value: object, *, raw: bool) -> None:
            shown.append(("update", value))

    def display(value: object, *, raw: bool, display_id: bool) -> Handle:
        shown.append(("display", value))
        return Handle()

    kernel = types.SimpleNamespace(kernel=object())
    fakes = {
        "IPython": types.SimpleNamespace(get_ipython=lambda: kernel),
        "IPython.display": types.SimpleNamespace(display=display),
    }
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    draw = view._draw_function(io.StringIO())
    for line in ("a", "", "b"):
        draw(line)
    assert shown == [("display", {"text/plain": "a"}), ("update", {"text/plain": "b"})]


def test_lines_of_programs_get_lines_of_their_own() -> None:
    output: list[str] = []
    BriefView(INFO, [].append, output.append).printed("worker-0", ["one", "two"])
    assert output == ["worker-0  | one", "worker-0  | two"]
