"""A run that is under way, in one line."""

from __future__ import annotations

import io
import sys
import types

import pytest

from lab.base.console import KEPT_NOTICES, Output, messages_shown, output
from lab.base.log import LOG
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import State
from lab.runner.store.run_info import RunInfo
from lab.runner.view import Clock
from lab.verbs.run_view import BriefView
from tests.support.fakes import record

INFO = RunInfo(
    run_id="r",
    spec=RunSpec(experiment="async"),
    cluster={"worker": ["a:1", "b:1"]},
    hyperparameters={"epochs": 9},
)


class Recorded(Output):
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notices: list[str] = []

    def draw(self, line: str) -> None:
        self.lines.append(line)

    def show(self, line: str) -> None:
        self.notices.append(line)


def test_the_line_shows_the_largest_step_or_the_epochs() -> None:
    view = BriefView(INFO, Recorded())
    assert view.line(1.4) == "run r: pending, 1 s"
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.records("worker-0", [record("worker-0", 0, epoch=1, loss=0.5)])
    assert view.line(2) == "run r: training, epoch 2/9, loss 0.5000, 2 s"
    view.records("worker-0", [record("worker-0", 0, epoch=1, global_step=1200, loss=0.5)])
    view.records("worker-1", [record("worker-1", 0, epoch=0, global_step=900, loss=0.75)])
    assert view.line(2) == "run r: training, epoch 2/9, global step 1,200, loss 0.5000, 2 s"
    view.forget("worker-0")
    assert "global step 900" in view.line(3)


def test_it_changes_at_most_twice_a_second() -> None:
    now, out = [0.0], Recorded()
    view = BriefView(INFO, out, Clock(lambda: now[0]))
    for moment in (0.1, 0.4, 0.6, 0.7, 1.2):
        now[0] = moment
        view.tick()
    assert out.lines == ["run r: pending, 1 s", "run r: pending, 1 s"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_narrow_terminal_shows_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    out = output()
    with messages_shown(out):
        out.draw("run r\x1b[2J and so on")
        LOG.info("look\x1b[2J")
        out.draw("end")
    shown = "\r\x1b[Krun r\\x1…\r\x1b[Klook\\x1b[2J\n\r\x1b[Kend"
    assert screen.getvalue() == shown


def test_a_file_gets_only_the_notices(capfd: pytest.CaptureFixture[str]) -> None:
    out = output()
    out.draw("x")
    out.show("look")
    assert capfd.readouterr() == ("", "look\n")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What a notebook shows: new outputs, and changes of them."""
    found: list[tuple[str, str]] = []

    class Handle:
        def update(self, value: dict[str, str], *, raw: bool) -> None:
            assert raw
            found.append(("update", value["text/plain"]))

    def display(value: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        found.append(("display", value["text/plain"]))
        return Handle()

    kernel = types.SimpleNamespace(kernel=object())
    fakes = {
        "IPython": types.SimpleNamespace(get_ipython=lambda: kernel),
        "IPython.display": types.SimpleNamespace(display=display),
    }
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)
    return found


def test_a_notebook_changes_one_output(
    shown: list[tuple[str, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    out = output()
    out.draw("a")
    with messages_shown(out):
        LOG.info("look\x1b[2J")
    out.draw("")
    out.print("of a program")
    assert shown == [
        ("display", "a"),
        ("update", "look\\x1b[2J\na"),
        ("update", "look\\x1b[2J"),
    ]
    assert capfd.readouterr() == ("of a program\n", "")


def test_a_notebook_shows_the_newest_notices(shown: list[tuple[str, str]]) -> None:
    out = output()
    for number in range(KEPT_NOTICES + 3):
        out.show(str(number))
    lines = shown[-1][1].split("\n")
    assert (lines[:2], lines[-1]) == (["… 3 earlier lines", "3"], str(KEPT_NOTICES + 2))


def test_ipython_in_a_terminal_is_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    shell = types.SimpleNamespace(get_ipython=types.SimpleNamespace)
    monkeypatch.setitem(sys.modules, "IPython", shell)
    output().show("look")
    assert capfd.readouterr().err == "look\n"


def test_lines_of_programs_get_lines_of_their_own() -> None:
    out = Recorded()
    BriefView(INFO, out).printed("worker-0", ["one", "two"])
    assert out.notices == ["worker-0  | one", "worker-0  | two"]
