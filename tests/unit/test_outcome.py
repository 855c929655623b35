"""The output of a command for a failed run."""

from __future__ import annotations

import contextlib
import os
import pty
from pathlib import Path

import pytest
from rich.cells import cell_len

from lab import console
from lab.errors import LabError
from lab.log import shown_by
from lab.run.outcome import LOG_LINES, check_succeeded
from lab.run.state import explain, verdict
from lab.store.directory import RunDir, read_statuses
from lab.store.run_info import RunInfo
from lab.store.summarize import summarize
from lab.tables import PIPE_WIDTH
from lab.text import MAX_LINE_BYTES
from lab.volume import RunSpec, TaskStatus
from lab.volume.files import write_atomically
from lab.volume.states import Cause, State
from lab.volume.status import write_status
from tests.support.specs import update

PREFIX = "worker-0  | "
CHATTER = b"I0000 00:00:1795401475.885592      50 rpc.cc:35] an RPC was cancelled\n"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "runs" / "r")
    cluster = {"ps": ["tf1:1"], "worker": ["tf1:2"]}
    made.create(
        RunInfo("r", RunSpec("async"), state=State.FAILED, reason="so it is", cluster=cluster)
    )
    for task, state in (("ps-0", State.CANCELLED), ("worker-0", State.FAILED)):
        made.status(task).parent.mkdir(exist_ok=True)
        write_atomically(made.status(task), TaskStatus(task, state).to_json())
        made.log(task).parent.mkdir(exist_ok=True)
        made.log(task).write_bytes(b"of " + task.encode() + b"\n")
    return made


def judged(run: RunDir) -> None:
    with pytest.raises(LabError, match=r"^run r failed \(so it is\); see its logs and records in"):
        check_succeeded(run, summarize(run))


def shown(run: RunDir, notices: list[str]) -> list[str]:
    """The messages without the last one, which names the log."""
    judged(run)
    *lines, last = notices
    assert last == f"{PREFIX}the whole log: {run.log('worker-0')}"
    return lines


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
    cut, whole, log, _ = text.decode().split("\r\n")
    assert cut == f"{PREFIX}{'x' * (39 - len(PREFIX))}…"
    assert whole == f"{PREFIX}{'y' * (40 - len(PREFIX))}"
    assert log == f"{PREFIX}the whole log: {run.log('worker-0')}"  # never cut: users copy it


def test_a_piece_of_a_line_is_not_shown_as_a_line(
    run: RunDir, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.run.outcome._TAIL_BYTES", 10)
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
    assert str(raised.value) == f"run r failed ({reason}); the whole log is {made.log('worker-2')}"
    assert notices == [
        "worker-0 failed: exit code 3",
        "worker-0  | last of worker-0",
        f"worker-0  | the whole log: {made.log('worker-0')}",
        f"worker-1 and 1 other failed: {error}",
    ]
