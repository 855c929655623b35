"""The output of a command for a failed run."""

from __future__ import annotations

import contextlib
import os
import pty
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from lab.base import console
from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.base.tables import PIPE_WIDTH
from lab.base.text import MAX_LINE_BYTES
from lab.cli import exit_code_of
from lab.protocol.experiments.experiment import OnFailure
from lab.protocol.volume import RunSpec, TaskStatus
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import Cause, State
from lab.protocol.volume.status import write_status
from lab.runner.store.directory import RunDir, read_statuses
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize
from lab.runner.verdict import LOG_LINES, check_succeeded, explain, verdict
from tests.support.specs import update

PREFIX = "worker-0  | "
REASON = "worker-0 failed: exit code 3"
CHATTER = b"I0000 00:00:1795401475.885592      50 rpc.cc:35] an RPC was cancelled\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "runs" / "r")
    cluster = {"ps": ["tf1:1"], "worker": ["tf1:2"]}
    made.create(RunInfo("r", RunSpec("async"), state=State.FAILED, reason=REASON, cluster=cluster))
    for task, state in (("ps-0", State.CANCELLED), ("worker-0", State.FAILED)):
        made.status(task).parent.mkdir(exist_ok=True)
        write_atomically(made.status(task), TaskStatus(task, state).to_json())
        made.log(task).parent.mkdir(exist_ok=True)
        made.log(task).write_bytes(b"of " + task.encode() + b"\n")
    return made


def judged(run: RunDir) -> None:
    log = re.escape(str(run.log("worker-0")))
    with pytest.raises(LabError, match=rf"^run r failed \({REASON}\); see the whole log in {log}$"):
        check_succeeded(run, summarize(run))


def shown(run: RunDir, notices: list[str]) -> list[str]:
    judged(run)
    return notices


def test_only_the_failed_tasks_log_is_shown(run: RunDir, notices: list[str]) -> None:
    assert shown(run, notices) == [f"{PREFIX}of worker-0"]
    run.log("worker-0").unlink()
    notices.clear()
    judged(run)
    assert notices == []


def test_the_last_lines_of_a_log_are_shown(run: RunDir, notices: list[str]) -> None:
    lines = [b"line %d\n" % number + CHATTER for number in range(100)]
    run.log("worker-0").write_bytes(b"".join(lines) + b"no end")
    expected = [f"{PREFIX}line {number}" for number in range(100 - LOG_LINES + 1, 100)]
    assert shown(run, notices) == [*expected, f"{PREFIX}no end"]


def test_long_lines_are_cut_and_stay_harmless(run: RunDir, notices: list[str]) -> None:
    long = [
        b"\\xc8" * (MAX_LINE_BYTES // 4),
        b"\x1b]0;owned\x07\x9b31m" * 1000,
        b"[red]\t" * 1000,
        "日本".encode() * 1000,
        b"\xff" * MAX_LINE_BYTES,
    ]
    run.log("worker-0").write_bytes(b"\n".join(long * LOG_LINES) + b"\n")
    lines = shown(run, notices)
    assert len(lines) == LOG_LINES
    assert {cell_len(line) for line in lines} <= {PIPE_WIDTH, PIPE_WIDTH - 1}
    assert all(line.startswith(PREFIX) and line.endswith("…") for line in lines)
    assert all(line.isprintable() for line in lines)
    assert lines[1].startswith(f"{PREFIX}\\x1b]0;owned\\x07�31m")


def test_lines_are_cut_at_the_terminals_width(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    run.log("worker-0").write_bytes(b"x" * 40 + b"\n" + b"y" * (40 - len(PREFIX)) + b"\n")
    reading, writing = pty.openpty()
    with os.fdopen(writing, "w") as terminal, monkeypatch.context() as context:
        context.setattr("sys.stderr", terminal)
        with shown_by(console.show):
            judged(run)
    text = b""
    with contextlib.suppress(OSError):  # the other end is closed, and all is read
        while True:
            text += os.read(reading, 4096)
    os.close(reading)
    cut, whole, _ = text.decode().split("\r\n")
    assert cut == f"{PREFIX}{'x' * (39 - len(PREFIX))}…"
    assert whole == f"{PREFIX}{'y' * (40 - len(PREFIX))}"


def test_a_piece_of_a_line_is_not_shown_as_a_line(
    run: RunDir, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.runner.verdict._TAIL_BYTES", 10)
    run.log("worker-0").write_bytes(b"first and long\nsecond\n")
    assert shown(run, notices) == [f"{PREFIX}second"]


def test_tasks_with_the_same_reason_are_reported_once(tmp_path: Path, notices: list[str]) -> None:
    made = RunDir(tmp_path / "runs" / "r")
    cluster = {"worker": ["tf1:1", "tf1:2", "tf1:3", "tf1:4"]}
    made.create(RunInfo("r", RunSpec("own", own=True), cluster=cluster))
    error, silent = "train.py:3: ValueError: bad", "exit code 3"
    failed, exited = State.FAILED, Cause.EXIT_CODE
    ends = [
        (failed, 0, silent, exited, 3, 9.0),
        (failed, 0, error, exited, 1, 9.0),
        (failed, 0, error, exited, 1, 8.0),
        (State.CANCELLED, 0, f"worker-1 failed: {error}", Cause.PEER_LOST, None, 9.0),
    ]
    for folder in (made.status(""), made.log("")):
        folder.parent.mkdir()
    for index, (*facts, ended) in enumerate(ends):
        task = f"worker-{index}"
        write_status(made.status(task), TaskStatus(task, *facts, ended_unix=ended))
        made.log(task).write_bytes(b"last of %s\n" % task.encode())
    statuses = read_statuses(made, made.read())
    state, reason = verdict(made.read(), statuses)
    assert (state, reason) == (State.FAILED, f"worker-2 and 1 other failed: {error}")
    assert explain(statuses["worker-3"]) == "cancelled: worker-1 failed"
    update(made, state=state, reason=reason)
    with pytest.raises(LabError) as raised:
        check_succeeded(made, summarize(made))
    assert (
        str(raised.value) == f"run r failed ({reason}); see the whole log in {made.log('worker-2')}"
    )
    assert notices == [
        "worker-0 failed: exit code 3",
        "worker-0  | last of worker-0",
    ]


TRAINING = "train.py:9: KeyError: 'x'"
CLEANUP = "AbortedError: Cleanup 2096"
OFFLINE = "a.py:1: gaierror: No address; tasks have no Internet"


@pytest.mark.parametrize(
    ("statuses", "on_failure", "error", "warnings"),
    [
        (
            [TaskStatus("worker-0", State.FAILED, reason=CLEANUP, cause=Cause.PEER_LOST),
             TaskStatus("worker-1", State.FAILED, reason=TRAINING, cause=Cause.EXIT_CODE)],
            OnFailure.FAIL,
            f"run r failed (worker-1 failed: {TRAINING}); see the whole log in LOG",
            [],
        ),
        (
            [TaskStatus("worker-0", State.FAILED, reason=OFFLINE, cause=Cause.EXIT_CODE,
                        fix="tasks have no Internet"),
             TaskStatus("worker-1", State.CANCELLED, reason="worker-0 failed: x")],
            OnFailure.FAIL,
            "run r failed (worker-0 failed: a.py:1: gaierror: No address); tasks have no Internet",
            [],
        ),
        (
            [TaskStatus("worker-0", State.SUCCEEDED),
             TaskStatus("worker-1", State.FAILED, reason=TRAINING, cause=Cause.EXIT_CODE)],
            OnFailure.CONTINUE, "", [f"worker-1 failed: {TRAINING}"],
        ),
    ],
    ids=["a consequence", "a fix", "without a worker"],
)  # fmt: skip
def test_the_reason_is_shown_once(
    tmp_path: Path,
    notices: list[str],
    statuses: list[TaskStatus],
    on_failure: OnFailure,
    error: str,
    warnings: list[str],
) -> None:
    made = RunDir(tmp_path / "runs" / "r")
    spec = RunSpec("async", on_failure=on_failure)
    made.create(RunInfo("r", spec, cluster={"worker": ["tf1:1", "tf1:2"]}))
    made.status("").parent.mkdir()
    for status in statuses:
        write_status(made.status(status.task), status)
    state, reason = verdict(made.read(), read_statuses(made, made.read()))
    update(made, state=state, reason=reason)
    refused = pytest.raises(LabError) if error else contextlib.nullcontext()
    with refused as raised:
        check_succeeded(made, summarize(made))
    if raised is not None:
        assert str(raised.value) == error.replace("LOG", str(made.log("worker-1")))
    assert notices == warnings


def test_a_task_that_restarts_does_not_read_as_starting() -> None:
    assert explain(TaskStatus("worker-0", State.STARTING)) == "starting"
    assert explain(TaskStatus("worker-0", State.STARTING, reason=TRAINING)) == (
        f"restarting: {TRAINING}"
    )


@pytest.mark.parametrize(
    ("framework", "step", "notice"),
    [
        ("torch", "", "needs_two.py ended before its first step"),
        ("torch", '{"kind": "step", "local_step": 1}\n', ""),
        ("tensorflow", "", ""),
    ],
)
def test_a_run_without_a_step_says_so(
    tmp_path: Path, notices: list[str], framework: str, step: str, notice: str
) -> None:
    made = RunDir(tmp_path / "runs" / "r")
    spec = RunSpec("own", "needs_two.py", own=True, framework=framework)
    made.create(RunInfo("r", spec, state=State.SUCCEEDED, cluster={"worker": ["tf1:1"]}))
    for path, text in (
        (made.status("worker-0"), TaskStatus("worker-0", State.SUCCEEDED).to_json()),
        (made.log("worker-0"), "needs 2 GPUs\n"),
        (made.records("worker-0"), step),
    ):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    check_succeeded(made, summarize(made))
    assert notices == [notice] * bool(notice)


@pytest.mark.parametrize(("columns", "lines"), [(80, 2), (200, 1)])
def test_a_narrow_terminal_shows_the_fix_in_its_own_line(
    monkeypatch: pytest.MonkeyPatch, notices: list[str], columns: int, lines: int
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))

    def fail() -> None:
        raise LabError("x" * 70, "do this and that")

    assert exit_code_of(fail, debug=False) == 1
    expected = [f"error: {'x' * 70}", "  do this and that"]
    assert notices == (expected if lines > 1 else [f"error: {'x' * 70}; do this and that"])
