"""A program's output: its lines, records and log, and the line that names its error."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.text import MAX_LINE_BYTES, SPLIT_MARK, visible
from lab.protocol.records import FIELDS, Value, format_record
from lab.protocol.records.error_line import ErrorLineFinder
from lab.task.agent.output import Output
from lab.task.agent.output_parser import Lines, OutputParser, RecordTags
from tests.support.agents import PATIENCE_S, wait_for


@given(st.lists(st.binary(max_size=60)))
def test_lines_are_complete(pieces: list[bytes]) -> None:
    lines = Lines()
    found = [line for piece in pieces for line in lines.feed(piece)]
    found += lines.close()
    data = b"".join(pieces)
    expected = data.split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert found == expected


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("step", [1000, 10**6])
def test_long_lines_are_split_visibly(end: bytes, step: int) -> None:
    data = bytes(range(65, 90)) * 2000 + end
    lines = Lines()
    found = []
    for position in range(0, len(data), step):
        found += lines.feed(data[position : position + step])
    found += lines.close()
    assert [len(line) for line in found[:-1]] == [MAX_LINE_BYTES + len(SPLIT_MARK.encode())] * 2
    assert all(line.endswith(SPLIT_MARK.encode()) for line in found[:-1])
    assert b"".join(line.removesuffix(SPLIT_MARK.encode()) for line in found) == data.rstrip(b"\n")


def test_line_of_maximal_length_is_not_split() -> None:
    assert list(Lines().feed(b"x" * MAX_LINE_BYTES + b"\n")) == [b"x" * MAX_LINE_BYTES]


WHO = RecordTags("20261121-0810-book-7f3a", 1, "worker", 2)
TAGS = {"run": WHO.run, "attempt": 1, "job_name": "worker", "task_index": 2}


def opened(folder: Path, echo: Callable[[bytes], None] = lambda _data: None) -> tuple[Output, int]:
    """The started reader of a program's output, and the end of the pipe to write to."""
    reading, writing = os.pipe()
    output = Output(reading, folder / "t.jsonl", folder / "t.log", OutputParser(WHO), echo)
    output.start()
    return output, writing


def pump(tmp_path: Path, data: bytes) -> tuple[Output, bytes]:
    said: list[bytes] = []
    output, writing = opened(tmp_path, said.append)
    with os.fdopen(writing, "wb") as file:
        file.write(data)
    output.finish(PATIENCE_S)
    return output, b"".join(said)


def stored(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "t.jsonl").read_bytes().splitlines()]


def logged(tmp_path: Path) -> bytes:
    return (tmp_path / "t.log").read_bytes()


def refusing(patch: pytest.MonkeyPatch, times: float) -> None:
    """Let the first writes fail, as on a full disk."""
    write, left = os.write, iter(range(int(min(times, 1e6))))

    def refuse(descriptor: int, data: bytes) -> int:
        if next(left, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    patch.setattr(os, "write", refuse)


@pytest.mark.parametrize(("refusals", "lost"), [(4, 0), (math.inf, 2)])
def test_lines_wait_for_a_full_volume_and_are_counted_if_it_stays_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusals: float, lost: int
) -> None:
    monkeypatch.setattr("lab.task.agent.output.REFUSED_S", 0.5 if lost else PATIENCE_S)
    refusing(monkeypatch, refusals)
    output, _ = pump(tmp_path, b"lab kind=step seq=0\nline\n" * 2)
    assert output.records_lost == lost
    assert (output.fault and output.fault.errno) == (errno.ENOSPC if lost else None)
    assert logged(tmp_path) == (b"" if lost else b"line\nline\n")
    assert len(stored(tmp_path)) == 2 - lost


STEP = b"worker=0,epoch=9,global_step=10896, local_step=5500, loss = 1.25"
SERVER = (
    b"I tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc:316] "
    b"Started server with target: grpc://localhost:2222"
)
WAITING = (
    b"I tensorflow/core/distributed_runtime/master.cc:209] "
    b"CreateSession still waiting for response from worker: /job:worker/replica:0/task:2"
)


def test_print_of_a_listing_becomes_a_record_and_stays_in_the_log(tmp_path: Path) -> None:
    before = time.time()
    output, said = pump(tmp_path, STEP + b"\r\nbye\n")
    (record,) = stored(tmp_path)
    assert before - 1 <= float(str(record.pop("time_unix"))) <= time.time() + 1
    assert 0 <= float(str(record.pop("elapsed_s"))) <= time.time() + 1 - before
    assert record == {
        "kind": "epoch",
        **TAGS,  # of the agent's task, though the line says `worker=0`
        "epoch": 9,
        "local_step": 5500,
        "global_step": 10896,
        "loss": 1.25,
    }
    assert list(record) == [name for name in FIELDS if name in record]
    assert logged(tmp_path) == STEP + b"\r\nbye\n"
    assert said == STEP + b"\nbye\n"
    assert (output.parser.started, output.parser.training) == (False, True)


@pytest.mark.parametrize(
    ("line", "started", "training"),
    [
        (SERVER, True, False),
        (WAITING, False, False),
        (STEP, False, True),
        (b"worker=2, final accuracy = 0.8894", False, False),
        (b"lab kind=start", True, False),
        (b"lab kind=event status=ready", True, False),
        (b"lab kind=start status=starting", False, False),
        (
            b"2017-10-31 16:00:00.1: step 0, loss = 2 (8.4 examples/sec; 0.012 sec/batch)",
            False,
            True,
        ),
    ],
)
def test_state_from_a_line(tmp_path: Path, line: bytes, started: bool, training: bool) -> None:
    output, _ = pump(tmp_path, line)
    assert (output.parser.started, output.parser.training) == (started, training)
    assert len(stored(tmp_path)) == 1


def test_program_that_writes_records_is_not_counted_twice(tmp_path: Path) -> None:
    final = b"worker=0, final accuracy = 0.5"
    lines = [STEP, b"lab kind=step", STEP, final, SERVER, WAITING]
    pump(tmp_path, b"\n".join(lines))
    kinds = [record["kind"] for record in stored(tmp_path)]
    assert kinds == ["epoch", "step", "event", "event"]
    assert logged(tmp_path).splitlines() == [STEP, *lines[2:]]


RECORDED = format_record(
    {"kind": "final", **TAGS, "seq": 3, "time_unix": 1.0, "elapsed_s": 0.1, "message": "lost"}
).encode()


def test_a_record_inside_library_output_is_not_lost(tmp_path: Path) -> None:
    pump(tmp_path, b"before\n[" + RECORDED + b"\n12:00: E] connection reset\nafter\n")
    (record,) = stored(tmp_path)
    assert (record["kind"], record["seq"]) == ("final", 3)
    assert logged(tmp_path) == b"before\n[12:00: E] connection reset\nafter\n"


@pytest.mark.parametrize(
    "line",
    [
        b"he wrote: lab kind=step seq=1 loss=0.5",
        b"he wrote: " + RECORDED.replace(b"run=2", b"run=3"),
        b"he wrote: " + RECORDED.replace(b"task_index=2", b"task_index=1"),
        b"he wrote: " + RECORDED + b" nonsense",
        b"he wrote: " + RECORDED + b"\xff",
        bytes(range(256)).replace(b"\n", b"") + b"\x9b31m\xe2\x80\xaeabc",
    ],
)
def test_any_other_line_stays_in_the_log_as_it_is_and_is_shown_safely(
    tmp_path: Path, line: bytes
) -> None:
    _, shown = pump(tmp_path, line + b"\n")
    assert stored(tmp_path) == []
    assert logged(tmp_path) == line + b"\n"
    assert visible(shown[:-1]).encode() == shown[:-1]


def test_a_program_that_records_only_events_still_prints_steps(tmp_path: Path) -> None:
    pump(tmp_path, b"lab kind=event message=mended\nlab kind=dance\n" + STEP + b"\n")
    assert [each["kind"] for each in stored(tmp_path)] == ["event", "epoch"]
    assert logged(tmp_path) == b"lab kind=dance\n" + STEP + b"\n"


WHOLE: dict[str, Value] = {"kind": "event", **TAGS, "time_unix": 12.5, "elapsed_s": 0.5}


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, WHOLE),
        ({"attempt": 7, "seq": 17, "message": "\udcff"}, None),
        *[({name: None}, WHOLE) for name in TAGS],
        *[({name: None}, {**TAGS, "kind": "event"}) for name in ("time_unix", "elapsed_s")],
        ({"run": "other", "job_name": "ps", "task_index": 0}, WHOLE),  # no program is another
    ],
)
def test_a_record_has_the_tags_of_its_task_and_a_time(
    tmp_path: Path, changes: dict[str, Value | None], kept: dict[str, Value] | None
) -> None:
    given = {name: value for name, value in (WHOLE | changes).items() if value is not None}
    output, _ = pump(tmp_path, format_record(given).encode())
    (record,) = stored(tmp_path)
    assert record.items() >= (given if kept is None else kept).items()
    assert list(record) == [name for name in FIELDS if name in WHOLE | given]
    assert (output.fault, logged(tmp_path)) == (None, b"")


def test_log_shows_records_as_text_and_tensorflow_in_one_line(tmp_path: Path) -> None:
    noise = b"I0000 00:00:1795476759.779848      20 port.cc:153] oneDNN custom operations are on."
    lines = [
        noise,
        b"lab kind=start status=starting batch_size=100",
        b"",
        b'lab kind=event message="waits for the chief"',
        b"lab kind=step epoch=0 local_step=500 global_step=1415 loss=3.5",
        b"lab kind=epoch epoch=0 local_step=550 global_step=1580 loss=2.9155 staleness=2",
        b"2026-11-23 10:00:00.123456: I tensorflow/core/util/port.cc:153] oneDNN",
        WAITING,
        b"\x1b[31mmine\x1b[0m",
        b"\r1/2 [=>..]\b\b\b\r2/2 [====]",
        b'lab kind=eval global_step=1650 accuracy=0.75 message="final parameters"',
        b"lab kind=result name=w value=2.0004",
        b"F0000 00:00:1795476759.779848 20 x.cc:1] Check failed",
    ]
    _, said = pump(tmp_path, b"\n".join(lines))
    assert said.decode().splitlines() == [
        "TensorFlow's own lines are in the log of the run",
        " ",
        "waits for the chief",
        "local step 500, global step 1,415, loss 3.5000",
        "epoch 1: local step 550, global step 1,580, loss 2.9155, staleness 2",
        "waits for worker-2",
        "mine",
        "2/2 [====]",
        "test: global step 1,650, accuracy 0.7500 (final parameters)",
        "w 2.0004",
        "F0000 00:00:1795476759.779848 20 x.cc:1] Check failed",
    ]
    kept = [line for line in lines if not line.startswith(b"lab ")]
    assert logged(tmp_path).split(b"\n")[:-1] == kept


def test_the_rest_of_a_split_line_is_not_mistaken_for_a_line(tmp_path: Path) -> None:
    """A line that is overwritten has many states; the last one is read, a cut one is not."""
    first_part = b"max_step 12, loss 0.5\n".rjust(MAX_LINE_BYTES + 18, b"x")  # `max_` is cut off
    last_part = b"\rstep 13, loss 0.5\n".rjust(MAX_LINE_BYTES + 3, b"x")  # `.5` is cut off
    overwritten = b"\rstep 1, loss 0.7" * 2_000 + b"\rstep 14, loss 0.5\n"
    pump(tmp_path, first_part + last_part + overwritten + b"step 15, loss 0.5\n")
    assert [record["global_step"] for record in stored(tmp_path)] == [14, 15]


def test_pipe_held_open_by_another_process_is_closed(tmp_path: Path) -> None:
    output, writing = opened(tmp_path)
    os.write(writing, b"said\nhalf")
    beats: list[float] = []
    output.finish(0.3, lambda: beats.append(time.monotonic()))  # the pipe is open still
    assert not output.is_alive()
    assert len(beats) > 1  # of the agent, while it waits
    assert logged(tmp_path) == b"said\nhalf\n"
    os.close(writing)


def test_a_changed_clock_does_not_change_the_time_between_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, writing = opened(tmp_path)
    output.note("before")
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + 3600)
    output.note("after")
    os.write(writing, b"lab kind=step global_step=1\n")
    os.close(writing)
    output.finish(PATIENCE_S)
    first, *others = [
        (float(str(each["time_unix"])), float(str(each["elapsed_s"]))) for each in stored(tmp_path)
    ]
    assert len(others) == 2
    for time_unix, elapsed_s in others:
        assert time_unix - first[0] == pytest.approx(elapsed_s - first[1], abs=0.002)


def test_a_fault_that_is_noted_after_the_death_of_the_program_is_kept(tmp_path: Path) -> None:
    output, writing = opened(tmp_path)
    may_close = output._may_close
    with mock.patch.object(may_close, "wait", wraps=may_close.wait) as waits:
        os.close(writing)
        wait_for(lambda: waits.called or not output.is_alive(), "it reads the end of the pipe")
        output.note("fault: kill worker-2")
        output.finish(PATIENCE_S)
    assert [record["message"] for record in stored(tmp_path)] == ["fault: kill worker-2"]


NAME = "InvalidArgumentError"
RAISED = f"tensorflow.python.framework.errors_impl.{NAME}"
# As TensorFlow 2.21 prints an error of a graph, up to the error's own message.
WRAPPED = f"""\
Traceback (most recent call last):
  File "session.py", line 1426, in _do_call
    raise type(e)(node_def, op, message)
{RAISED}: Graph execution error:

Detected at node 'm' defined at (most recent call last):
    File "prog.py", line 26, in main
    File "app.py", line 410, in run
Detected at node 'm' defined at (most recent call last):
    File "prog.py", line 26, in main
Node: 'm'
"""


BEGIN = "Traceback (most recent call last):\n  x\n"
FROM_WORKER = "From /job:worker/replica:0/task:1:"


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("all is well\nbye", ""),
        (f"{BEGIN}KeyError: 1\n\nDuring handling\n\n{BEGIN}a.b.MyError: 2", "a.b.MyError: 2"),
        (f"{BEGIN}KeyboardInterrupt", "KeyboardInterrupt"),
        ("F0000 x.cc:1] Check failed: ok", "F0000 x.cc:1] Check failed: ok"),
        ("ValueError: first\nx: error: second", "ValueError: first"),
        ("\x1b[1;31merror: red\x1b[0m", "error: red"),
        (f"{WRAPPED}Incompatible sizes\n\t [[{{{{node m}}}}]]", f"{NAME}: Incompatible sizes"),
        (f"{WRAPPED}==========\nINVALID_ARGUMENT: {FROM_WORKER}\nbad index", f"{NAME}: bad index"),
        (
            f"{WRAPPED}2 root error(s) found.\n  (0) INTERNAL: x\n  (1) y",
            f"{NAME}: (0) INTERNAL: x",
        ),
        (f"{WRAPPED}W0000 00:00:17.5   50 rendezvous.cc:412] aborting\nown", f"{NAME}: own"),
        (f"{WRAPPED}\nOriginal stack trace for 'm':\n  File\nbye", NAME),
        (f"{RAISED}: Graph execution error:\n\nfrom no node\nsecond", f"{NAME}: from no node"),
        (f"{WRAPPED}own\n\n{BEGIN}KeyError: 1", "KeyError: 1"),
        (f"ValueError:\n{BEGIN}OSError: a", "OSError: a"),
        (f"{RAISED}: From /job:ps/replica:0/task:0:\ngone\n\t [[{{node m}}]]", f"{NAME}: gone"),
    ],
)
def test_error_line(log: str, line: str) -> None:
    culprit = ErrorLineFinder()
    for each in log.encode().split(b"\n"):
        culprit.feed(each)
    assert culprit.error_line() == line
