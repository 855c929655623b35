"""The recorder: whole lines, in order, from any thread, in a run or by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from lab.records import FIELDS, Record, RecordError, parse_record
from lab.task.sdk.recorder import Recorder

ROOT = Path(__file__).parents[2]
RUN = {"LAB_RUN_ID": "20261121-0810-async-7f3a", "LAB_ATTEMPT": "2"}


@dataclass
class Output:
    """Where a recorder under test writes: a file, which no amount of lines can fill."""

    path: Path
    descriptor: int

    def records(self) -> list[Record]:
        """Everything that was written; each line must be a record."""
        found = [parse_record(line) for line in self.path.read_text().splitlines()]
        assert None not in found
        return [record for record in found if record is not None]


@pytest.fixture
def output(tmp_path: Path) -> Iterator[Output]:
    path = tmp_path / "output"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    yield Output(path, descriptor)
    os.close(descriptor)


def test_a_changed_clock_does_not_change_the_time_between_records(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder("worker", 1, environment=RUN, descriptor=output.descriptor)
    recorder.write("start")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    recorder.write("step")
    first, second = output.records()
    passed_s = float(second["elapsed_s"]) - float(first["elapsed_s"])
    assert float(second["time_unix"]) - float(first["time_unix"]) == pytest.approx(
        passed_s, abs=0.002
    )


def test_every_record_carries_its_context(output: Output) -> None:
    before, began = time.time(), time.monotonic()
    recorder = Recorder("worker", 1, environment=RUN, descriptor=output.descriptor)
    recorder.write("start", batch_size=100)
    recorder.write("step", epoch=0, local_step=1, global_step=3, loss=2.5, staleness=2)
    first, second = output.records()
    assert first["run"] == "20261121-0810-async-7f3a"
    assert (first["attempt"], first["job_name"], first["task_index"]) == (2, "worker", 1)
    assert (first["kind"], first["seq"], first["batch_size"]) == ("start", 0, 100)
    assert (second["kind"], second["seq"], second["loss"]) == ("step", 1, 2.5)
    assert before - 1 <= float(second["time_unix"]) <= time.time() + 1
    took_s = time.monotonic() - began + 1e-6  # as exact as a record is
    assert 0 <= float(first["elapsed_s"]) <= float(second["elapsed_s"]) <= took_s


def test_by_hand_there_is_no_run(output: Output) -> None:
    recorder = Recorder("ps", 0, environment={}, descriptor=output.descriptor)
    recorder.write("start")
    (record,) = output.records()
    assert (record["run"], record["attempt"]) == ("by-hand", 0)


def test_numpy_scalars_become_plain_numbers(output: Output) -> None:
    recorder = Recorder("worker", 0, environment=RUN, descriptor=output.descriptor)
    recorder.write(
        "step",
        global_step=np.int64(12),
        staleness=np.int32(1),
        loss=np.float32(1.2575617),
        accuracy=np.float64(1) / 3,
        wait_time_s=np.int64(0),
    )
    (record,) = output.records()
    assert record["global_step"] == 12
    assert np.float32(float(record["loss"])) == np.float32(1.2575617)
    assert record["accuracy"] == 0.333333333
    assert all(type(value) is FIELDS[name] for name, value in record.items())


def test_invalid_records_are_refused_and_use_no_number(output: Output) -> None:
    recorder = Recorder("worker", 0, environment=RUN, descriptor=output.descriptor)
    with pytest.raises(TypeError):
        recorder.write("step", global_step=1.5)
    with pytest.raises(RecordError, match="unknown field 'colour'"):
        recorder.write("step", colour=3)
    with pytest.raises(RecordError, match="unknown kind 'dance'"):
        recorder.write("dance")  # type: ignore[arg-type]
    recorder.write("event", message="still here")
    (record,) = output.records()
    assert record["seq"] == 0


def test_threads_share_a_recorder(output: Output) -> None:
    """Every line is whole, every number is there once, and they are in order."""
    recorder = Recorder("worker", 0, environment=RUN, descriptor=output.descriptor)
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
    for thread_number in range(threads):
        own = [r["local_step"] for r in records if r["epoch"] == thread_number]
        assert own == list(range(each))


def test_a_record_is_one_write(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """One write of less than PIPE_BUF bytes reaches a pipe whole."""
    written: list[bytes] = []
    write = os.write

    def watch(descriptor: int, data: bytes) -> int:
        if descriptor == output.descriptor:
            written.append(bytes(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", watch)
    recorder = Recorder("worker", 0, environment=RUN, descriptor=output.descriptor)
    recorder.write("event", message="m" * 10_000)
    (line,) = written
    assert len(line) <= 4096
    assert line.endswith(b"\n")


def test_a_short_write_is_finished(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    Recorder("worker", 0, environment=RUN, descriptor=output.descriptor).write(
        "event", message="whole"
    )
    monkeypatch.undo()
    (record,) = output.records()
    assert record["message"] == "whole"


def run_program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={"PYTHONPATH": str(ROOT), **RUN},
        capture_output=True,
        text=True,
        check=False,
    )


def test_prints_and_records_keep_their_order() -> None:
    done = run_program(
        """
        from lab.task.sdk.recorder import Recorder
        recorder = Recorder("worker", 0)
        print("before")
        recorder.write("event", message="between")
        print("after")
        """
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["before", "lab", "after"]


def test_the_recorder_is_light() -> None:
    done = run_program(
        """
        import sys
        import lab.task.sdk.recorder
        print(sorted(sys.modules.keys() & {"numpy", "tensorflow", "docker", "fire", "pydantic"}))
        """
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("word", "asked"), [("", []), ("3", [1, 2, 3]), ("1", [1])], ids=["none", "third", "first"]
)
def test_a_program_waits_for_its_start_and_its_step(
    tmp_path: Path, word: str, asked: list[int]
) -> None:
    path = tmp_path / "word"
    path.write_text(word)
    done = run_program(
        f"""
        from lab.task.sdk.program import wait_for_start
        asked = []
        def global_step():
            asked.append(len(asked) + 1)
            return asked[-1]
        wait_for_start(global_step, {{"LAB_START": {str(path)!r}}})
        wait_for_start(environment={{"LAB_START": {str(path)!r}}})
        print(asked)
        """
    )
    assert done.stdout == f"{asked}\n"


PEER_LOST = r"From /job:worker/replica:0/task:0:\nFrom /job:ps/replica:0/task:1"


@pytest.mark.parametrize(
    ("raised", "code", "message", "traceback"),
    [
        ('ProgramError("no luck", "try again")', 1, "no luck; try again", False),
        ('DataError("no data", "fetch it")', 2, "no data; fetch it", False),
        (
            f'UnavailableError("{PEER_LOST}")',
            1,
            "lost contact with ps-1; see how it ended",
            False,
        ),
        ('AbortedError("gone")', 1, "lost contact with another task; see how it ended", False),
        (
            'LookupError("reset by peer\\nnode x originally returned UnavailableError, and was")',
            1,
            "lost contact with another task; see how it ended",
            False,
        ),
        (
            'LookupError("Graph execution error:\\n\\nDetected at node x\\nreason")',
            1,
            "LookupError: reason",
            True,
        ),
        (
            "LookupError(\"Graph execution error:\\n\\nDetected at node 'x' defined at:\\n"
            "    File 'a.py', line 1\\nNode: 'x'\\nreason\\n\\t [[x]]\")",
            1,
            "LookupError: reason",
            True,
        ),
        ('ValueError("first\\nsecond")', 1, "ValueError: first", True),
        ('ValueError("  first\\nsecond")', 1, "ValueError: first", True),
        ("AssertionError()", 1, "AssertionError: ", True),
    ],
)
def test_a_failure_is_the_last_record(
    raised: str, code: int, message: str, traceback: bool
) -> None:
    done = run_program(
        f"""
        from lab.task.sdk.data import DataError
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
    assert record is not None
    assert (record["kind"], record["status"], record["message"]) == ("final", "failed", message)
    assert ("Traceback" in done.stderr) is traceback
    if not traceback:
        assert done.stderr == f"error: {message}\n"
