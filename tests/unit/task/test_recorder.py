"""A training program and its run: the records, their time, the start signal, a failure."""

from __future__ import annotations

import os
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from lab.protocol.records import FIELDS, Record, RecordError, parse_record
from lab.protocol.volume.clock import file_system_time, unix_time
from lab.task.sdk.recorder import Recorder
from tests.support.agents import ROOT
from tests.support.commands import Done, python

RUN = {"LAB_RUN_DIR": "/runs/20261121-0810-async-7f3a", "LAB_ATTEMPT": "2"}


@dataclass
class Output:
    """Where a recorder under test writes: a file, which no amount of lines can fill."""

    path: Path
    descriptor: int

    def recorder(self) -> Recorder:
        with patch.dict(os.environ, RUN):
            return Recorder("worker", 1, descriptor=self.descriptor)

    def records(self) -> list[Record]:
        found = [parse_record(line) for line in self.path.read_text().splitlines()]
        assert None not in found
        return [record for record in found if record is not None]


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    path = tmp_path / "output"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    yield Output(path, descriptor)
    os.close(descriptor)


def test_every_record_carries_its_context_and_no_change_of_the_clock(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, began, right = time.time(), time.monotonic(), time.time
    recorder = output.recorder()
    recorder.write("start", batch_size=100)
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    recorder.write("step", epoch=0, local_step=1, global_step=3, loss=2.5, staleness=2)
    first, second = output.records()
    known = {"run": "20261121-0810-async-7f3a", "attempt": 2, "job_name": "worker", "task_index": 1}
    assert first.items() >= {**known, "kind": "start", "seq": 0, "batch_size": 100}.items()
    assert second.items() >= {**known, "kind": "step", "seq": 1, "loss": 2.5}.items()
    assert before - 1 <= float(first["time_unix"]) <= float(second["time_unix"]) <= right() + 1
    took_s = time.monotonic() - began + 1e-6  # as exact as a record is
    assert 0 <= float(first["elapsed_s"]) <= float(second["elapsed_s"]) <= took_s


def test_by_hand_there_is_no_run(output: Output) -> None:
    Recorder("ps", 0, descriptor=output.descriptor).write("start")
    (record,) = output.records()
    assert (record["run"], record["attempt"]) == ("by-hand", 0)


def test_numpy_scalars_become_plain_numbers(output: Output) -> None:
    numbers = {"global_step": np.int64(12), "staleness": np.int32(1), "wait_time_s": np.int64(0)}
    floats = {"loss": np.float32(1.2575617), "accuracy": np.float64(1) / 3}
    output.recorder().write("step", **numbers, **floats)
    (record,) = output.records()
    assert record["global_step"] == 12
    assert np.float32(float(record["loss"])) == np.float32(1.2575617)
    assert record["accuracy"] == 0.333333333
    assert all(type(value) is FIELDS[name] for name, value in record.items())


def test_invalid_records_are_refused_and_use_no_number(output: Output) -> None:
    recorder = output.recorder()
    for kind, fields in (("step", {"global_step": 1.5}), ("step", {"colour": 3}), ("dance", {})):
        with pytest.raises((TypeError, RecordError)):
            recorder.write(kind, **fields)
    recorder.write("event", message="still here")
    (record,) = output.records()
    assert record["seq"] == 0


def test_threads_share_a_recorder(output: Output) -> None:
    """Every line is whole, every number is there once, and they are in order."""
    recorder = output.recorder()
    threads, each = 8, 40

    def write(thread: int) -> None:
        for step in range(each):
            recorder.write("step", epoch=thread, local_step=step, message="x" * 40)

    started = [threading.Thread(target=write, args=(thread,)) for thread in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    records = output.records()
    assert [record["seq"] for record in records] == list(range(threads * each))
    by_thread = sorted((int(r["epoch"]), n, int(r["local_step"])) for n, r in enumerate(records))
    assert [step for _, _, step in by_thread] == [*range(each)] * threads


@pytest.mark.parametrize("short", [False, True])
def test_a_record_is_one_write_which_is_finished_if_it_was_short(
    output: Output, monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    """One write of less than PIPE_BUF bytes reaches a pipe whole."""
    written: list[int] = []
    write = os.write

    def watch(descriptor: int, data: bytes) -> int:
        if descriptor == output.descriptor:
            written.append(len(data))
        return write(descriptor, data[: 7 if short else None])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", watch)
        output.recorder().write("event", message="m" * 10_000)
    (record,) = output.records()
    assert str(record["message"]).startswith("mmm")
    assert written[0] <= 4096
    assert short or len(written) == 1


# ---- the time of day in a job whose hosts have different clocks

TICK_S = 0.1  # the clock of a file system is coarse


@pytest.mark.parametrize("ahead_s", [60.0, -60.0])
def test_all_hosts_have_the_time_of_their_file_system(
    tmp_path: Path, output: Output, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    monkeypatch.setenv("LAB_CLOCK", str(tmp_path))  # a directory that all hosts see
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead_s)
    before = unix_time()
    assert before == pytest.approx(right(), abs=TICK_S)
    output.recorder().write("event", message="")
    (record,) = output.records()
    assert record["time_unix"] == pytest.approx(right(), abs=TICK_S)
    os.utime(tmp_path, (0, 0))
    monkeypatch.setattr(time, "time", lambda: right() - ahead_s)
    assert 0 <= unix_time() - before < TICK_S


def test_on_one_host_the_time_is_that_of_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAB_CLOCK", raising=False)
    monkeypatch.setattr(time, "time", lambda: 5.0)
    assert unix_time() == 5.0
    with pytest.raises(FileNotFoundError):
        file_system_time(tmp_path / "missing")


# ---- the permission of the agent to train


@pytest.mark.parametrize(
    ("start_file", "word", "steps", "asked"),
    [
        (None, "", None, []),  # by hand
        ("", "", None, []),
        ("start", "", None, []),
        ("start", "100", None, []),  # a program that knows no global step joins at once
        ("start", "", [40], []),
        ("start", "100", [40, 80, 100], [40, 80, 100]),
        ("start", "100", [101], [101]),
    ],
)
def test_a_program_waits_for_its_start_and_then_for_its_step(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    start_file: str | None,
    word: str,
    steps: list[int] | None,
    asked: list[int],
) -> None:
    start = tmp_path / "start"
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        assert seconds <= 0.1
        sleeps.append(seconds)
        if len(sleeps) == 3:
            start.write_text(word)

    monkeypatch.setattr("lab.task.sdk.recorder.time.sleep", sleep)
    monkeypatch.delenv("LAB_START", raising=False)
    if start_file is not None:
        monkeypatch.setenv("LAB_START", start_file and str(tmp_path / start_file))
    found: list[int] = []

    def step() -> int:
        found.append((steps or [])[len(found)])
        return found[-1]

    global_step: Callable[[], int] | None = None if steps is None else step
    recorder = Recorder("worker", 0)
    recorder.ready(global_step=global_step)
    assert found == asked
    assert len(sleeps) == (3 + max(0, len(asked) - 1) if start_file else 0)


def run_program(text: str) -> Done:
    return python("-c", textwrap.dedent(text), env={"PYTHONPATH": str(ROOT), **RUN})


def test_prints_and_records_keep_their_order_and_the_recorder_is_light() -> None:
    done = run_program(
        """
        import sys
        from lab.task.sdk.recorder import Recorder
        recorder = Recorder("worker", 0)
        print("before")
        recorder.write("event", message="between")
        print(sorted(sys.modules.keys() & {"numpy", "tensorflow", "docker", "fire", "pydantic"}))
        """
    )
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["before", "lab", "[]"]


PEER_LOST = r"From /job:worker/replica:0/task:0:\nFrom /job:ps/replica:0/task:1"
RESET = r"reset by peer\nnode x originally returned UnavailableError, and was"
IN_A_GRAPH = (
    r"Graph execution error:\n\nDetected at node 'x' defined at:\n    File 'a.py', line 1\n"
    r"Node: 'x'\nreason\n\t [[x]]"
)
OTHER_LOST = "lost contact with another task; see how it ended"


@pytest.mark.parametrize(
    ("raised", "code", "message", "traceback"),
    [
        ('ProgramError("no luck", "try again")', 1, "no luck; try again", False),
        ('DataError("no data", "fetch it")', 2, "no data; fetch it", False),
        (f'UnavailableError("{PEER_LOST}")', 1, "lost contact with ps-1; see how it ended", False),
        ('AbortedError("gone")', 1, OTHER_LOST, False),
        (f'LookupError("{RESET}")', 1, OTHER_LOST, False),
        (f'LookupError("{IN_A_GRAPH}")', 1, "LookupError: reason", True),
        (r'ValueError("  first\nsecond")', 1, "ValueError: first", True),
        ("AssertionError()", 1, "AssertionError: ", True),
    ],
)
def test_a_failure_is_the_last_record(
    raised: str, code: int, message: str, traceback: bool
) -> None:
    done = run_program(
        f"""
        from lab.protocol.mnist import DataError
        from lab.task.sdk.program import ProgramError, report_failure
        from lab.task.sdk.recorder import Recorder
        class UnavailableError(Exception): pass
        class AbortedError(Exception): pass
        recorder = Recorder("worker", 0)
        report_failure(recorder)
        raise {raised}
        """
    )
    assert done.returncode == code
    (record,) = [parse_record(line) for line in done.stdout.splitlines()]
    assert (record["kind"], record["status"], record["message"]) == ("final", "failed", message)
    assert ("Traceback" in done.stderr) is traceback
    if not traceback:
        assert done.stderr == f"error: {message}\n"
