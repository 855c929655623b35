"""The view of a run for the user: fixed rows, few lines, no raw text from a task."""

from __future__ import annotations

import io
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lab.run.summarize import summary_of
from lab.run.tables import result_table, table_of
from lab.run.view import LiveView, PlainView
from lab.task.protocol import RunSpec, TaskStatus
from lab.task.protocol.states import State
from tests.support.fakes import record
from tests.support.specs import info
from tests.support.summaries import INFO, TASKS, good, statuses

BRACKETS = ("[/lab/x]", "[relu, tanh]", "[link=https://example.org]here[/link]")
EVIL = "\x1b]0;owned\x07[bold red]no markup[/]"


def drawn(view: LiveView, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(view._render())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in text.splitlines()]


def live(width: int = 80, *, with_gpus: bool = False, **hyperparameters: object) -> LiveView:
    run = replace(info(), hyperparameters={"epochs": 5, **hyperparameters})
    if with_gpus:
        run = replace(run, gpus=("GPU-1",), tasks=({"task": "worker-0", "gpus": ("GPU-1",)},))
    return LiveView(run, Console(file=io.StringIO(), width=width, force_terminal=False))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"global_step": 20, "loss": 0.5}, "worker-0: global step 20, loss 0.5000"),
        ({"kind": "epoch", "epoch": 0, "loss": 0.5}, "worker-0: epoch 1/5, loss 0.5000"),
    ],
)
def test_the_plain_view_prints_progress_without_local_steps(
    fields: dict[str, Any], line: str
) -> None:
    stream = io.StringIO()
    PlainView(info(), stream).records("worker-0", [record("worker-0", 0, **fields)])
    assert stream.getvalue().splitlines() == [line]


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
    assert [line.find("staleness") for line in before] == [line.find("staleness") for line in after]
    assert [line.split(" ")[0] for line in before[3:]] == [line.split(" ")[0] for line in after[3:]]


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


@pytest.mark.parametrize("with_gpus", [False, True])
@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_message_has_the_width_that_is_left(width: int, *, with_gpus: bool) -> None:
    view = live(width, with_gpus=with_gpus)
    view.records("worker-1", [{"kind": "event", "message": "m" * 80}])
    lines = drawn(view, width)
    assert all(len(line) <= width for line in lines)
    at_least = {60: 7, 80: 9, 160: 80}[width]
    assert lines[-1].count("m") >= at_least
    assert [line.split()[0] for line in lines[-3:]] == ["ps-0", "worker-0", "worker-1"]


def test_only_the_last_column_grows_with_the_terminal() -> None:
    assert {drawn(live(width), width)[4].find("staleness") for width in (80, 120, 160)} == {65}


def training(*steps: int) -> LiveView:
    view = live(80)
    for index, step in enumerate(steps):
        task = f"worker-{index}"
        view.status(TaskStatus(task, State.TRAINING))
        for seq, (local, value) in enumerate(((0, 8.0), (step, 1.0))):
            view.records(
                task,
                [record(task, seq, epoch=0, local_step=local, global_step=2 * local, loss=value,
                        examples=100 * local, time_unix=100.0 + 10 * seq)],
            )  # fmt: skip
    return view


def test_the_header_shows_the_progress_of_the_run() -> None:
    lines = drawn(training(550, 550), 80)
    assert lines[1].endswith("20 %, about 40 s left")
    assert lines[2] == "loss 8.0000 ██████████▁ 1.0000"


def test_before_the_first_step_the_header_names_what_takes_so_long() -> None:
    view = live(80)
    assert drawn(view, 80)[1].endswith("0 %, TensorFlow starts")
    first = {"epoch": 0, "local_step": 1, "global_step": 1, "examples": 100, "time_unix": 1.0}
    view.records("worker-0", [record("worker-0", 0, **first)])
    assert drawn(view, 80)[1].endswith(" 0 %")


def test_the_view_shows_which_worker_is_ahead() -> None:
    assert drawn(training(550, 500), 80)[2].endswith("worker-0 is 50 steps ahead")
    level = training(550, 550)
    assert "ahead" not in drawn(level, 80)[2]
    failed = training(550, 500)
    failed.status(TaskStatus("worker-1", State.FAILED))
    assert "ahead" not in drawn(failed, 80)[2]


def test_a_difference_below_one_record_shows_no_lead() -> None:
    view = live(80, record_every=100)
    for task, step in (("worker-0", 300), ("worker-1", 200)):
        view.status(TaskStatus(task, State.TRAINING))
        view.records(task, [record(task, 0, local_step=step, loss=1.0, time_unix=1.0)])
    assert drawn(view, 80)[2] == "loss 1.0000"
    view.records("worker-0", [record("worker-0", 1, local_step=301, loss=1.0, time_unix=1.5)])
    assert drawn(view, 80)[2] == "loss 1.0000   worker-0 is 101 steps ahead"


def test_an_ascii_terminal_gets_only_ascii() -> None:
    view = training(550, 500)
    view.records("ps-0", [{"kind": "event", "message": "m" * 100}])
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    view._console = Console(file=raw, width=80, force_terminal=False)
    view._console.print(view._render())
    raw.seek(0)
    lines = raw.read().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].startswith("loss 8.0000 #")


def test_the_lines_above_the_rows_are_the_same_before_and_after_the_first_record() -> None:
    assert len(drawn(live(80), 80)) == len(drawn(training(550, 500), 80))


def test_a_run_without_an_end_and_without_losses_has_neither_bar_nor_curve() -> None:
    hello = replace(info(), spec=RunSpec("hello"), hyperparameters={})
    view = LiveView(hello, Console(file=io.StringIO(), width=80))
    assert [line.split(" ")[0] for line in drawn(view, 80)[:3]] == ["run", "", "task"]


def test_the_time_limit_is_shown_if_it_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.run.view.time.time", lambda: 1010.0)
    view = training(550, 500)
    view._info = replace(info(), spec=RunSpec("async", max_time_s=30), submitted_unix=1000.0)
    assert drawn(view, 80)[1].endswith("20 %, time limit in 20 s")
    view._info = replace(info(), spec=RunSpec("async", max_time_s=300), submitted_unix=1000.0)
    assert drawn(view, 80)[1].endswith("20 %, about 40 s left")
    monkeypatch.setattr("lab.run.view.time.time", lambda: 4610.0)  # the clock is changed
    view._info = replace(info(), spec=RunSpec("async", max_time_s=30), submitted_unix=1000.0)
    assert drawn(view, 80)[1].endswith("20 %, time limit in 20 s")
    monkeypatch.setattr("lab.run.view.time.time", lambda: 1010.0)
    monkeypatch.setattr("lab.run.view.time.monotonic", lambda: view._began + 10)
    view._info = replace(info(), spec=RunSpec("async", max_time_s=30), submitted_unix=None)
    assert drawn(view, 80)[1].endswith("20 %, time limit in 20 s")
    own = replace(
        view._info, spec=RunSpec("own", max_time_s=300), hyperparameters={}, submitted_unix=1000.0
    )
    assert drawn(LiveView(own, Console(file=io.StringIO())), 80)[
        1
    ] == "time limit in 290 s".replace("290 s", "5 min")


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
