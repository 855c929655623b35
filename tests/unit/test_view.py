"""The view of a run for the user: fixed rows, few lines, no raw text from a task."""

from __future__ import annotations

import io
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lab.run.run_info import RunInfo
from lab.run.summarize import summary_of
from lab.run.tables import result_table, table_of
from lab.run.view import LiveView, PlainView
from lab.task.protocol import RunSpec, TaskStatus
from lab.task.protocol.states import State
from tests.unit.fakes import PLAN, record
from tests.unit.test_summary import INFO, TASKS, good, statuses

BRACKETS = ("[/lab/x]", "[relu, tanh]", "[link=https://example.org]here[/link]")
EVIL = "\x1b]0;owned\x07[bold red]no markup[/]"


def info() -> RunInfo:
    return RunInfo(
        "r1", RunSpec("async"), cluster=PLAN.cluster_spec(), hyperparameters={"epochs": 5}
    )


def drawn(view: LiveView, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(view._render())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def live() -> LiveView:
    return LiveView(info(), Console(file=io.StringIO(), force_terminal=False))


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_has_a_row_for_each_task_in_fixed_order(width: int) -> None:
    view = live()
    view.records(
        "worker-1",
        [record("worker-1", 0, "step", epoch=2, local_step=100, global_step=283, loss=1.5,
                staleness=2, time_unix=10.0)],
    )  # fmt: skip
    view.status(TaskStatus("worker-1", State.TRAINING))
    view.status(TaskStatus("ps-0", State.READY))
    lines = drawn(view, width)
    assert all(len(line) <= width for line in lines)
    assert [line.split()[:2] for line in lines[-3:]] == [
        ["ps-0", "ready"],
        ["worker-0", "pending"],
        ["worker-1", "training"],
    ]
    assert lines[-1].split() == ["worker-1", "training", "3/5", "100", "283", "1.5000", "2",
                                 "updates"]  # fmt: skip


def test_column_widths_are_stable() -> None:
    view = live()
    before = drawn(view, 80)
    view.records(
        "worker-0",
        [
            record("worker-0", seq, "step", epoch=seq, local_step=step, global_step=3 * step,
                   loss=0.25, staleness=11, time_unix=float(step))
            for seq, step in enumerate((1, 27_000))
        ],
    )  # fmt: skip
    view.status(TaskStatus("worker-0", State.SUCCEEDED))
    after = drawn(view, 80)
    assert [len(line) for line in before[1:4]] == [len(line) for line in after[1:4]]


def test_a_task_without_heartbeat_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("lab.run.view.time.monotonic", lambda: now)
    view = live()
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.records("worker-0", [record("worker-0", 0, "step", staleness=1)])
    assert drawn(view, 80)[-2].endswith("1 update")
    now = 107.0
    assert drawn(view, 80)[-2].endswith("silent 7 s")


def test_the_thread_that_draws_takes_no_signal() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    with LiveView(info(), Console(file=io.StringIO(), force_terminal=True)):
        (drawing,) = (thread for thread in threading.enumerate() if thread.ident not in before)
        words = Path(f"/proc/self/task/{drawing.native_id}/status").read_text().split()
    blocked = int(words[words.index("SigBlk:") + 1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert blocked & 1 << number - 1


def test_repeated_records_count_once() -> None:
    view = live()
    view.records("worker-0", [record("worker-0", 0, "step", local_step=500)])
    view.forget("worker-0")
    view.records("worker-0", [record("worker-0", 0, "step", local_step=100)])
    assert "100" in drawn(view, 80)[-2].split()


def test_the_plain_view_prints_states_and_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("lab.run.view.time.monotonic", lambda: now)
    stream = io.StringIO()
    view = PlainView(info(), stream)
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.status(TaskStatus("worker-0", State.TRAINING, pid=4711))
    for step in range(1, 200):
        now += 0.1
        epoch = step // 100
        view.records("worker-0", [record("worker-0", step, epoch=epoch, local_step=step)])
        view.tick()
    view.status(TaskStatus("worker-0", State.FAILED, reason=EVIL))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "worker-0: training"
    assert lines[1] == "worker-0: epoch 1/5, local step 1"
    assert "worker-0: epoch 2/5, local step 100" in lines
    assert len(lines) <= 3 + 2 + 20 / 5
    assert "\x1b" not in stream.getvalue()
    view.notice(EVIL)
    assert "\x1b" not in stream.getvalue()
    assert lines[-1].endswith("\\x1b]0;owned\\x07[bold red]no markup[/]")


@pytest.mark.parametrize("width", [80, 120])
def test_the_result_fits_the_terminal_and_is_complete(width: int) -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.FAILED)
    failed = {"state": State.FAILED, "reason": EVIL}
    changed = replace(INFO, **failed)
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(result_table(summary_of(changed, states, good())))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines = [line.rstrip() for line in text.splitlines()]
    assert all(len(line) <= width for line in lines)
    rows = [line.split() for line in lines if line.startswith(TASKS)]
    assert rows[0] == ["ps-0", "tf1", "succeeded"]
    assert rows[1] == ["worker-0", "tf2", "succeeded", "2", "20", "35", "1.0000", "0.5000"]
    assert rows[2][:3] == ["worker-1", "tf3", "failed"]
    assert "accuracy of the final parameters   0.7500" in lines
    assert "global step                        40, 10 a second" in lines
    assert "first step of every worker         after 6.0 s" in lines
    assert "every update counted               yes" in lines
    assert "\x1b" not in text
    assert "[bold red]no markup[/]" in text.replace("\n", "")


@pytest.mark.parametrize("text", BRACKETS)
def test_a_cell_is_text_and_no_markup(text: str) -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    console.print(table_of(("task", ">reason"), [("worker-0", text)]))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert text in written
    assert "\x1b]8" not in written


@pytest.mark.parametrize("text", BRACKETS)
def test_a_nodes_name_in_the_result_is_no_markup(text: str) -> None:
    task = replace(summary_of(INFO, statuses(), good()).tasks[0], node=text)
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    console.print(result_table(replace(summary_of(INFO, statuses(), good()), tasks=(task,))))
    assert text in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_wait_is_reported_once() -> None:
    stream = io.StringIO()
    view = PlainView(info(), stream)
    waits = {"kind": "event", "message": "waits for worker-0\x1b[31m"}
    for _ in range(3):
        view.records("worker-1", [waits])
    assert stream.getvalue() == "worker-1: waits for worker-0\\x1b[31m\n"


def test_a_wait_is_shown_in_its_row() -> None:
    view = live()
    view.records("worker-1", [{"kind": "event", "message": "waits for worker-0"}])
    assert drawn(view, 100)[-1].endswith("waits for worker-0")
    assert all(len(line) <= 80 for line in drawn(view, 80))
    assert "waits for w" in drawn(view, 80)[-1]


def test_lines_of_programs_are_above_the_table_and_no_markup() -> None:
    stream = io.StringIO()
    view = LiveView(info(), Console(file=stream, width=80, force_terminal=False))
    view.printed("ps-0", [*BRACKETS, "two"])
    assert stream.getvalue().splitlines() == [f"ps-0      | {line}" for line in (*BRACKETS, "two")]


def test_the_plain_view_prints_lines_of_programs_as_they_are() -> None:
    stream = io.StringIO()
    PlainView(info(), stream).printed("worker-1", ["  " + "x" * 900, BRACKETS[0]])
    assert stream.getvalue().splitlines() == [
        "worker-1  |   " + "x" * 900,
        f"worker-1  | {BRACKETS[0]}",
    ]
