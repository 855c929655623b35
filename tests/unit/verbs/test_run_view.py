"""The view of a run for the user: fixed rows, few lines, no raw text from a task."""

from __future__ import annotations

import io
import math
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from lab.base.log import shown_by
from lab.base.tables import table_of
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.states import State
from lab.runner.result_table import result_table
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summary_of
from lab.runner.view import StepRate
from lab.verbs.live_view import LiveView
from lab.verbs.run_view import PlainView
from tests.support.fakes import record
from tests.support.shown import assert_shows
from tests.support.specs import info
from tests.support.summaries import INFO, TASKS, good, statuses

BRACKETS = ("[/lab/x]", "[relu, tanh]", "[link=https://example.org]here[/link]")
EVIL = "\x1b]0;owned\x07[bold red]no markup[/]"


def screen(width: int = 80, *, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=terminal)


def text_on(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def drawn(view: LiveView, width: int = 80) -> list[str]:
    console = screen(width)
    console.print(view._render())
    return [line.rstrip() for line in text_on(console).splitlines()]


def live(width: int = 80, *, with_gpus: bool = False, **hyperparameters: object) -> LiveView:
    run = replace(info(), hyperparameters={"epochs": 5, **hyperparameters})
    if with_gpus:
        run = replace(run, gpus=("GPU-1",), tasks=({"task": "worker-0", "gpus": ("GPU-1",)},))
    return LiveView(run, screen(width))


def waits(message: str) -> list[dict[str, object]]:
    return [{"kind": "event", "message": message}]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("lab.runner.view.time.monotonic", lambda: now[0])
    return now


def test_the_plain_view_prints_progress_without_local_steps() -> None:
    stream = io.StringIO()
    view = PlainView(info(), stream)
    view.records("worker-0", [record("worker-0", 0, global_step=20, loss=0.5)])
    view.records("worker-1", [record("worker-1", 0, "epoch", epoch=0, loss=0.5)])
    assert stream.getvalue().splitlines() == [
        "worker-0: global step 20, loss 0.5000",
        "worker-1: epoch 1/5, loss 0.5000",
    ]


def test_the_plain_view_prints_the_message_of_a_step_without_figures() -> None:
    stream = io.StringIO()
    view = PlainView(info(), stream)
    view.records("worker-0", [record("worker-0", 0, "step", message="28.9 global steps/s")])
    assert stream.getvalue() == "worker-0: 28.9 global steps/s\n"


def test_the_plain_view_prints_states_and_epochs(clock: list[float]) -> None:
    stream = io.StringIO()
    view = PlainView(info(), stream)
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.status(TaskStatus("worker-0", State.TRAINING, pid=4711))
    for step in range(1, 200):
        clock[0] += 0.1
        epoch = step // 100
        view.records("worker-0", [record("worker-0", step, epoch=epoch, local_step=step)])
        view.tick()
    view.status(TaskStatus("worker-0", State.FAILED, reason=EVIL))
    lines = stream.getvalue().splitlines()
    assert lines[:2] == ["worker-0: training", "worker-0: epoch 1/5, local step 1"]
    assert "worker-0: epoch 2/5, local step 100" in lines
    assert len(lines) <= 3 + 2 + 20 / 5
    assert lines[-1] == "worker-0: failed"  # the end of the run gives the reason
    view.show(EVIL)
    assert "\x1b" not in stream.getvalue()


def test_a_wait_is_reported_once(notices: list[str]) -> None:
    view = PlainView(info(), io.StringIO())
    for _ in range(3):
        view.records("worker-1", waits("waits for worker-0\x1b[31m"))
    assert notices == ["worker-1: waits for worker-0\\x1b[31m"]


def test_lines_of_programs_are_no_markup() -> None:
    console, stream = screen(), io.StringIO()
    LiveView(info(), console).printed("ps-0", [*BRACKETS, "two"])  # above the table
    lines = [f"ps-0      | {line}" for line in (*BRACKETS, "two")]
    assert text_on(console).splitlines() == lines
    PlainView(info(), stream).printed("ps-0", [*BRACKETS, "x" * 900])
    assert stream.getvalue().splitlines() == [*lines[:-1], "ps-0      | " + "x" * 900]


@pytest.mark.parametrize("width", [80, 120])
def test_the_result_fits_the_terminal_and_is_complete(width: int) -> None:
    states = statuses(ps_0=State.SUCCEEDED, worker_0=State.SUCCEEDED, worker_1=State.FAILED)
    changed = replace(INFO, state=State.FAILED, reason=EVIL)
    console = screen(width)
    console.print(result_table(summary_of(changed, states, good())))
    text = text_on(console)
    lines = [line.rstrip() for line in text.splitlines()]
    assert all(len(line) <= width for line in lines)
    rows = [line.split() for line in lines if line.startswith(TASKS)]
    assert rows[0] == ["ps-0", "tf1", "succeeded"]
    assert rows[1] == ["worker-0", "tf2", "succeeded", "2", "20", "35", "1.0000", "0.5000"]
    assert rows[2][:3] == ["worker-1", "tf3", "failed"]
    assert {
        "accuracy of the final parameters   0.7500",
        "global step                        40, 10 a second",
        "first step of every worker         after 6.0 s",
        "every update counted               yes",
    } <= {*lines}
    assert "\x1b" not in text
    assert "[bold red]no markup[/]" in text.replace("\n", "")


@pytest.mark.parametrize("text", BRACKETS)
def test_a_cell_and_a_nodes_name_are_text_and_no_markup(text: str) -> None:
    console = screen(200, terminal=True)
    summary = summary_of(INFO, statuses(), good())
    console.print(table_of(("task", ">reason"), [("worker-0", text)]))
    console.print(result_table(replace(summary, tasks=(replace(summary.tasks[0], node=text),))))
    assert text_on(console).count(text) == 2
    assert "\x1b]8" not in text_on(console)


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_view_has_a_row_for_each_task_in_fixed_order_and_columns(width: int) -> None:
    view = live()
    before = drawn(view, width)
    step = {"epoch": 2, "local_step": 100, "global_step": 27_283, "loss": 1.5, "staleness": 2}
    view.records("worker-1", [record("worker-1", 0, "step", **step, time_unix=10.0)])
    view.status(TaskStatus("worker-1", State.TRAINING))
    view.status(TaskStatus("ps-0", State.READY))
    lines = drawn(view, width)
    assert all(len(line) <= width for line in lines)
    assert [line.split() for line in lines[-3:]] == [
        ["ps-0", "ready"],
        ["worker-0", "pending"],
        ["worker-1", "training", "3/5", "100", "27,283", "1.5000", "2", "updates"],
    ]
    assert [line.find("staleness") for line in before] == [line.find("staleness") for line in lines]
    view.forget("worker-1")
    view.records("worker-1", [record("worker-1", 0, "step", local_step=50)])
    assert drawn(view, width)[-1].split() == ["worker-1", "training", "50"]


def test_a_task_without_heartbeat_is_marked(clock: list[float]) -> None:
    view = live()
    view.status(TaskStatus("worker-0", State.TRAINING))
    view.records("worker-0", [record("worker-0", 0, "step", staleness=1)])
    assert drawn(view)[-2].endswith("1 update")
    clock[0] += 7
    assert drawn(view)[-2].endswith("silent 7 s")


def test_the_thread_that_draws_takes_no_signal() -> None:
    before = {thread.ident for thread in threading.enumerate()}
    with LiveView(info(), screen(terminal=True)):
        (drawing,) = (thread for thread in threading.enumerate() if thread.ident not in before)
        words = Path(f"/proc/self/task/{drawing.native_id}/status").read_text().split()
    blocked = int(words[words.index("SigBlk:") + 1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert blocked & 1 << number - 1


@pytest.mark.parametrize("with_gpus", [False, True])
@pytest.mark.parametrize(("width", "at_least"), [(60, 7), (80, 9), (160, 80)])
def test_a_message_has_the_width_that_is_left(
    width: int, at_least: int, *, with_gpus: bool
) -> None:
    view = live(width, with_gpus=with_gpus)
    view.records("worker-1", waits("m" * 80))
    lines = drawn(view, width)
    assert all(len(line) <= width for line in lines)
    assert lines[-1].count("m") >= at_least
    assert [line.split()[0] for line in lines[-3:]] == ["ps-0", "worker-0", "worker-1"]


def training(*steps: int, run: RunInfo | None = None) -> LiveView:
    view = live() if run is None else LiveView(run, screen())
    for index, step in enumerate(steps):
        task = f"worker-{index}"
        view.status(TaskStatus(task, State.TRAINING))
        for seq, (local, loss) in enumerate(((0, 8.0), (step, 1.0))):
            made = {"local_step": local, "global_step": 2 * local, "examples": 100 * local}
            each = record(task, seq, epoch=0, loss=loss, **made, time_unix=100.0 + 10 * seq)
            view.records(task, [each])
    return view


def test_the_header_shows_the_progress_of_the_run() -> None:
    view = live()
    new = drawn(view)
    assert new[1].endswith("0 %, starting TensorFlow")
    first = {"epoch": 0, "local_step": 1, "global_step": 1, "examples": 100, "time_unix": 1.0}
    view.records("worker-0", [record("worker-0", 0, **first)])
    assert drawn(view)[1].endswith(" 0 %")
    lines = drawn(training(550, 550))
    assert lines[1].endswith("20 %, about 40 s left")
    assert len(lines) == len(new)
    hello = replace(info(), spec=RunSpec("hello"), hyperparameters={})
    assert drawn(LiveView(hello, screen()))[1:3] == drawn(live())[2:4]  # it has no known end


def test_the_page_shows_the_live_view() -> None:
    view = LiveView(replace(info(), run_id="20261124-1437-async-fecf", backend="local"), screen())
    view.status(TaskStatus("ps-0", State.READY, message="serves at grpc://127.0.0.1:10128"))
    for task, steps in (("worker-0", 1100), ("worker-1", 800)):
        view.status(TaskStatus(task, State.TRAINING))
        for seq, (local, loss) in enumerate(((1, 8.0), (steps, 2.0))):
            made = {"epoch": seq, "local_step": local, "global_step": 2 * local, "loss": loss}
            at = {"examples": 100 * local, "time_unix": 100.0 + 10 * seq, "staleness": 1}
            view.records(task, [record(task, seq, "step", **made, **at)])
    printed = "\n".join(drawn(view))
    assert_shows("docs/how-to/follow-a-run.md", "run ", printed, figures=False)


def test_without_staleness_the_view_shows_who_waits() -> None:
    view = live()
    for task in ("worker-0", "worker-1"):
        view.status(TaskStatus(task, State.TRAINING))
    assert drawn(view)[-5].endswith("staleness")
    for wait_s in (0.03, math.nan, -1.0, 0.05):  # the last three cannot be right
        step = record("worker-0", 0, step_time_s=0.04, wait_time_s=wait_s)
        view.records("worker-0", [step])
    assert drawn(view)[-5].endswith("waits")
    assert [line.endswith("75 % of a step") for line in drawn(view)[-2:]] == [True, False]
    view.records("worker-1", [record("worker-1", 0, staleness=1, step_time_s=0, wait_time_s=0)])
    assert drawn(view)[-5].endswith("staleness")


def test_what_a_task_waits_for_comes_before_its_own_message() -> None:
    view = live(100)
    view.records("worker-1", waits("weights on ps-0"))
    assert drawn(view, 100)[-1].endswith("weights on ps-0")
    view.status(TaskStatus("worker-1", State.READY, message="waits: it starts after 9 steps\x1b"))
    assert drawn(view, 100)[-1].endswith("waits: it starts after 9 steps\\x1b")
    view.status(TaskStatus("worker-1", State.FAILED, message="late"))
    assert drawn(view, 100)[-1].split() == ["worker-1", "failed"]


def test_a_fault_and_a_new_start_are_lines_once() -> None:
    shown: list[str] = []
    notes = ["fault: kill ps-0\x1b", "attempt 1 begins: killed", "fault over: x", "weights"]
    for view in (live(), PlainView(info(), io.StringIO())):
        view.records("worker-0", [record("worker-0", 0, local_step=1)])
        with shown_by(shown.append):
            for _ in range(2):
                view.records("worker-0", [waits(note)[0] for note in notes])
    assert shown == 2 * [
        "worker-0: fault: kill ps-0\\x1b",
        "worker-0: attempt 1 begins: killed",
        "worker-0: fault over: x",
    ]


@pytest.mark.parametrize(
    ("marks", "per_s"),
    [
        ([], None),
        ([(1.0, 10)], None),
        ([(1.0, 10), (2.0, 30)], 20),
        ([(1.0, 10), (1.0, 30)], None),
        ([(1.0, 10), (9.0, 30)], 2.5),
        # Only the last five seconds count, a new attempt counts alone, as after a changed clock.
        ([(0.0, 0), (4.0, 400), (6.0, 402), (9.0, 405)], 1),
        ([(0.0, 0), (4.0, 400), (5.0, 1), (6.0, 4)], 3),
        ([(100.0, 0), (4.0, 400), (6.0, 402)], 1),
        ([(0.0, 0), (math.nan, 5), (1.0, 10)], 10),
        ([(0.0, 0), (1.0, "x"), (2.0, 10)], 5),
    ],
)
def test_the_rate_is_that_of_the_last_seconds(
    marks: list[tuple[float, object]], per_s: float | None
) -> None:
    rate = StepRate()
    for at, step in marks:
        rate.add(record("worker-0", 0, local_step=step, time_unix=at))
    rate.add(record("worker-0", 0, "eval", local_step=9999, time_unix=9.5))
    assert rate.per_s == per_s


def test_an_ascii_terminal_gets_only_ascii() -> None:
    view = training(550, 500)
    view.records("ps-0", waits("m" * 100))
    raw = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    view._console = Console(file=raw, width=80, force_terminal=False)
    view._console.print(view._render())
    raw.seek(0)
    lines = raw.read().splitlines()
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("limit_s", "submitted", "elapsed_s", "shown"),
    [
        (30, 1000.0, 10.0, "20 %, time limit in 20 s"),
        (300, 1000.0, 10.0, "20 %, about 40 s left"),
        (30, None, 10.0, "20 %, time limit in 20 s"),
    ],
)
def test_the_time_limit_is_shown_if_it_comes_first(
    monkeypatch: pytest.MonkeyPatch,
    clock: list[float],
    limit_s: int,
    submitted: float | None,
    elapsed_s: float,
    shown: str,
) -> None:
    monkeypatch.setattr("lab.runner.view.time.time", lambda: 1000.0)
    limited = replace(info(), spec=RunSpec("async", max_time_s=limit_s), submitted_unix=submitted)
    view = training(550, 500, run=limited)
    clock[0] += elapsed_s
    monkeypatch.setattr("lab.runner.view.time.time", lambda: 4610.0)  # the clock is changed
    assert drawn(view)[1].endswith(shown)
    own = replace(limited, spec=RunSpec("own", max_time_s=290 + limit_s), hyperparameters={})
    assert drawn(LiveView(own, screen()))[1].startswith("time limit in ")
