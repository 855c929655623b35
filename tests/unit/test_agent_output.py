"""Text, lines and files: how the agent processes a program's output."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.records import FIELDS, format_record
from lab.task.agent.appender import Appender
from lab.task.agent.output import MAX_LINE_BYTES, Lines, Output
from lab.task.agent.record_tags import RecordTags
from lab.task.probes import health, pause
from lab.task.protocol.error_line import ErrorLineFinder
from lab.task.text import SPLIT_MARK, bounded, clipped, printed, short, visible
from tests.support.agents import PATIENCE_S, ROOT, wait_for
from tests.support.conditions import lacking


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        ("tab\tstays", "tab\tstays"),
        ("é 日本 🙂", "é 日本 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x08c\x07", "a\\x0db\\x08c\\x07"),
        (b"\x9b31m\xff", "\ufffd31m\ufffd"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eabc\u2028", "\\u202eabc\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_visible(raw: str | bytes, shown: str) -> None:
    assert visible(raw) == shown


@given(st.text() | st.binary())
def test_nothing_unsafe_is_ever_shown(raw: str | bytes) -> None:
    shown = visible(raw)
    assert visible(shown) == shown
    assert not [c for c in shown if c != "\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]
    shown.encode()


BAR = (
    "\x1b[1m{0}/20\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 2ms/step - loss: 0.{0}"
)
STATES = ("\b" * 40 + "\r").join(BAR.format(step) for step in range(1, 21))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (STATES, "20/20 ━━ 1s 2ms/step - loss: 0.20"),
        (f"\r{STATES}\b\b\r", "20/20 ━━ 1s 2ms/step - loss: 0.20"),
        (STATES[: STATES.rindex("2ms")] + SPLIT_MARK, "19/20 ━━ 1s 2ms/step - loss: 0.19"),
        (f"a{SPLIT_MARK}", f"a{SPLIT_MARK}"),
        ("step 1\rstep 2\r", "step 2"),
        ("\r\b\r", ""),
        ("working |\b/\b-\bdone", "working done"),
        ("\b\bab", "ab"),
        ("\x1b[2K\x1b[31mred \x1b[0m[b]\x1b[38;5;1m é", "red [b] é"),
        ("\ttwo  blanks ", "\ttwo  blanks "),
        ("\x1b]0;title\x07\x1b", "\\x1b]0;title\\x07\\x1b"),
        ("\x1b\x1b[m[31mx", "\\x1b[31mx"),
    ],
)
def test_of_an_overwritten_line_the_last_state_is_shown(line: str, shown: str) -> None:
    assert printed(line.encode()) == shown


@given(st.text(st.sampled_from("ab\r\b\x1b[31mK;é")))
def test_no_printed_line_controls_the_terminal(line: str) -> None:
    assert visible(printed(line.encode())) == printed(line.encode())


def test_short() -> None:
    assert short("x" * 200) == "x" * 200
    cut = short("x" * 5000)
    assert cut == "x" * 180 + "… (5,000 characters)"
    assert len(cut) == 200
    assert short(cut) == cut
    assert clipped("x" * 40, 40) == "x" * 40
    assert clipped("x" * 41, 40) == "x" * 39 + "…"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("no task 'worker-9'; there are worker-0 and worker-1", None),
        ("the runs' volume isn't there, and " + "so it is " * 30 + "with the user's files", None),
        (f"no task '{'x' * 201}'; see it", f"no task '{'x' * 182}… (201 characters)'; see it"),
        (f"no run '{'a b ' * 60}' here", f"no run '{('a b ' * 60)[:182]}… (240 characters)' here"),
        (f"/{'x' * 300}/y: not found", f"/{'x' * 181}… (304 characters) not found"),
        ("a b " * 300, ("a b " * 300)[:980] + "… (1,200 characters)"),
        ("x\n\x1b[2J", r"x\x0a\x1b[2J"),
    ],
)
def test_long_parts_of_a_message_are_cut(message: str, shown: str | None) -> None:
    assert bounded(message) == (message if shown is None else shown)


@given(st.text(st.sampled_from("ab '\n\x1b…é"), max_size=3000))
def test_messages_are_bounded(message: str) -> None:
    shown = bounded(message)
    assert len(shown) <= 1000
    assert max(map(len, shown.split(" "))) <= 202  # with quotation marks


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


def test_endless_line_takes_no_memory() -> None:
    lines = Lines()
    for _ in range(100):
        assert all(len(line) < 30_000 for line in lines.feed(b"x" * 100_000))
    assert sum(map(len, lines.close())) <= MAX_LINE_BYTES


def test_appender_removes_a_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    file = Appender(path)
    file.append(b"whole\n")
    write = os.write
    room = [3]

    def full(descriptor: int, data: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        done = write(descriptor, data[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr("lab.task.protocol.files.os.write", full)
    file.append(b"torn line\n")
    assert path.read_bytes() == b"whole\n"
    with pytest.raises(OSError, match="No space left"):
        file.close()
    assert path.read_bytes() == b"whole\n"


WHO = RecordTags("20261121-0810-book-7f3a", 1, "worker", 2)


def pump(tmp_path: Path, data: bytes) -> tuple[Output, bytes]:
    reading, writing = os.pipe()
    said: list[bytes] = []
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", said.append, WHO)
    output.start()
    with os.fdopen(writing, "wb") as file:
        file.write(data)
    output.finish(PATIENCE_S)
    return output, b"".join(said)


def refusing(patch: pytest.MonkeyPatch, times: float) -> None:
    """Let the first writes fail, as on a full disk."""
    write, left = os.write, iter(range(int(min(times, 1e6))))

    def refuse(descriptor: int, data: bytes) -> int:
        if next(left, None) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    patch.setattr(os, "write", refuse)


def test_lines_wait_for_a_full_volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, 4)
    output, _ = pump(tmp_path, b"lab kind=step seq=0\nline\n" * 2)
    assert (output.fault, output.records_lost) == (None, 0)
    assert (tmp_path / "t.log").read_bytes() == b"line\nline\n"
    assert len((tmp_path / "t.jsonl").read_bytes().splitlines()) == 2


def test_records_that_could_not_be_written_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.task.agent.appender.REFUSED_S", 0.5)
    refusing(monkeypatch, math.inf)
    output, _ = pump(tmp_path, b"lab kind=step seq=0\nline\n" * 2)
    assert output.fault is not None
    assert output.fault.errno == errno.ENOSPC
    assert output.records_lost == 2


def test_many_lines_are_in_order(tmp_path: Path) -> None:
    lines = [
        b"lab kind=step seq=%d" % number if number % 3 else b"line %d" % number
        for number in range(30_000)
    ]
    output, said = pump(tmp_path, b"\n".join(lines))
    assert said.splitlines() == lines[::3]  # these records have no text form
    assert (output.started, output.training, output.fault) == (False, True, None)
    assert (tmp_path / "t.log").read_bytes().splitlines() == lines[::3]
    assert len((tmp_path / "t.jsonl").read_bytes().splitlines()) == 20_000


STEP = b"worker=0,epoch=9,global_step=10896, local_step=5500, loss = 1.25"
SERVER = (
    b"I tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc:316] "
    b"Started server with target: grpc://localhost:2222"
)
WAITING = (
    b"I tensorflow/core/distributed_runtime/master.cc:209] "
    b"CreateSession still waiting for response from worker: /job:worker/replica:0/task:2"
)


def stored(tmp_path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (tmp_path / "t.jsonl").read_bytes().splitlines()]


def test_print_of_a_listing_becomes_a_record_and_stays_in_the_log(tmp_path: Path) -> None:
    before = time.time()
    output, said = pump(tmp_path, STEP + b"\r\nbye\n")
    (record,) = stored(tmp_path)
    assert before - 1 <= float(str(record.pop("time_unix"))) <= time.time() + 1
    assert 0 <= float(str(record.pop("elapsed_s"))) <= time.time() + 1 - before
    assert record == {
        "kind": "epoch",
        "run": WHO.run,
        "attempt": 1,
        "job_name": "worker",
        "task_index": 2,  # the agent's task, though the line says `worker=0`
        "epoch": 9,
        "local_step": 5500,
        "global_step": 10896,
        "loss": 1.25,
    }
    assert list(record) == [name for name in FIELDS if name in record]
    assert (tmp_path / "t.log").read_bytes() == STEP + b"\r\nbye\n"
    assert said == STEP + b"\nbye\n"
    assert (output.started, output.training) == (False, True)


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
    assert (output.started, output.training) == (started, training)
    assert len(stored(tmp_path)) == 1


def test_each_wait_is_reported(tmp_path: Path) -> None:
    pump(tmp_path, b"\n".join([WAITING] * 3))
    assert [record["message"] for record in stored(tmp_path)] == ["waits for worker-2"] * 3


def test_program_that_writes_records_is_not_counted_twice(tmp_path: Path) -> None:
    final = b"worker=0, final accuracy = 0.5"
    lines = [STEP, b"lab kind=step", STEP, final, SERVER, WAITING]
    pump(tmp_path, b"\n".join(lines))
    kinds = [record["kind"] for record in stored(tmp_path)]
    assert kinds == ["epoch", "step", "event", "event"]
    assert (tmp_path / "t.log").read_bytes().splitlines() == [STEP, *lines[2:]]


RECORDED = format_record(
    {
        "kind": "final",
        "run": WHO.run,
        "attempt": 1,
        "job_name": "worker",
        "task_index": 2,
        "seq": 3,
        "time_unix": 1.0,
        "elapsed_s": 0.1,
        "message": "lost contact with another rank",
    }
).encode()


def test_a_record_inside_library_output_is_not_lost(tmp_path: Path) -> None:
    pump(tmp_path, b"before\n[" + RECORDED + b"\n12:00: E] connection reset\nafter\n")
    (record,) = stored(tmp_path)
    assert (record["kind"], record["seq"]) == ("final", 3)
    assert (tmp_path / "t.log").read_bytes() == b"before\n[12:00: E] connection reset\nafter\n"


@pytest.mark.parametrize(
    "line",
    [
        b"he wrote: lab kind=step seq=1 loss=0.5",
        b"he wrote: " + RECORDED.replace(b"run=2", b"run=3"),
        b"he wrote: " + RECORDED.replace(b"task_index=2", b"task_index=1"),
        b"he wrote: " + RECORDED + b" nonsense",
        b"he wrote: " + RECORDED + b"\xff",
    ],
)
def test_text_that_resembles_a_record_stays_in_the_log(tmp_path: Path, line: bytes) -> None:
    pump(tmp_path, line + b"\n")
    assert stored(tmp_path) == []
    assert (tmp_path / "t.log").read_bytes() == line + b"\n"


def test_a_listing_that_records_events_still_prints_steps(tmp_path: Path) -> None:
    event = format_record(
        {
            "kind": "event",
            "run": WHO.run,
            "attempt": 1,
            "job_name": "worker",
            "task_index": 2,
            "seq": 0,
            "time_unix": 1.0,
            "elapsed_s": 0.1,
            "message": "mended",
        }
    ).encode()
    pump(tmp_path, event + b"\n" + STEP + b"\n")
    assert [each["kind"] for each in stored(tmp_path)] == ["event", "epoch"]


def test_broken_record_does_not_stop_a_listing(tmp_path: Path) -> None:
    pump(tmp_path, b"lab kind=dance\n" + STEP)
    assert [record["kind"] for record in stored(tmp_path)] == ["epoch"]


def test_record_written_by_hand_is_completed(tmp_path: Path) -> None:
    began = time.monotonic()
    pump(tmp_path, b"lab kind=step loss=0.5 attempt=7 time_unix=12.5")
    (record,) = stored(tmp_path)
    assert 0 <= float(str(record.pop("elapsed_s"))) <= time.monotonic() - began
    assert record == {
        "kind": "step",
        "run": WHO.run,
        "attempt": 7,
        "job_name": "worker",
        "task_index": 2,
        "loss": 0.5,
        "time_unix": 12.5,
    }


@pytest.mark.parametrize(
    "name", ["run", "attempt", "job_name", "task_index", "time_unix", "elapsed_s"]
)
def test_field_that_a_record_lacks_is_added(tmp_path: Path, name: str) -> None:
    whole = {
        "run": WHO.run,
        "attempt": 1,
        "job_name": "worker",
        "task_index": 2,
        "time_unix": 12.5,
        "elapsed_s": 0.5,
    }
    given_fields = {key: value for key, value in whole.items() if key != name}
    pump(tmp_path, format_record({"kind": "event", **given_fields}).encode())
    (record,) = stored(tmp_path)
    assert list(record) == ["kind", *whole]
    assert record.items() >= given_fields.items()
    assert name in ("time_unix", "elapsed_s") or record[name] == whole[name]


@pytest.mark.parametrize("fault", ["run=other", "job_name=ps", "task_index=0"])
def test_no_program_writes_for_another(tmp_path: Path, fault: str) -> None:
    own = {"run": WHO.run, "job_name": "worker", "task_index": "2"}
    name, _, value = fault.partition("=")
    given_names = " ".join(f"{key}={text}" for key, text in (own | {name: value}).items())
    pump(tmp_path, f"lab kind=event {given_names} attempt=1 time_unix=1 elapsed_s=1".encode())
    (record,) = stored(tmp_path)
    assert (record["run"], record["job_name"], record["task_index"]) == (WHO.run, "worker", 2)


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
    assert (tmp_path / "t.log").read_bytes().split(b"\n")[:-1] == kept


def test_record_with_half_a_character_is_stored(tmp_path: Path) -> None:
    message = b'lab kind=event message="\\udcff"\n'
    output, said = pump(tmp_path, message + b"more\n")
    assert (output.fault, said) == (None, b"\\udcff\nmore\n")
    assert [record["message"] for record in stored(tmp_path)] == ["\udcff"]


def test_complete_record_is_stored_unchanged(tmp_path: Path) -> None:
    given_fields = {
        "kind": "step",
        "run": WHO.run,
        "attempt": 1,
        "job_name": "worker",
        "task_index": 2,
        "seq": 17,
        "time_unix": 1795256117.972,
        "elapsed_s": 12.345,
    }
    pump(tmp_path, format_record(given_fields).encode())
    assert stored(tmp_path) == [given_fields]
    assert (tmp_path / "t.log").read_bytes() == b""


def test_odd_values_in_a_listing_are_harmless(tmp_path: Path) -> None:
    lines = [
        b"worker=0,epoch=9,global_step=1, local_step=1, loss = nan",
        b"worker=0,epoch=9,global_step=" + b"9" * 10_000 + b", local_step=1, loss = 1",
        b"worker=0,epoch=9,global_step=1, local_step=1, loss = \xff\xfe",
        b"After many training steps",
        b"lab kind=step global_step=" + b"9" * 10_000,
        b"lab kind=step loss=\xff",
        STEP,
    ]
    output, _ = pump(tmp_path, b"\n".join(lines))
    assert [record["global_step"] for record in stored(tmp_path)] == [1, 1, 10896]
    assert (tmp_path / "t.log").read_bytes().splitlines() == lines
    assert output.fault is None


def test_an_expression_of_the_user_makes_records(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"it 5, err 0.5\nstep 6, loss 0.25\n")
    os.close(writer)
    regex = r"it (?P<step>\d+), err (?P<loss>\S+)"
    output = Output(
        reader, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _: None, WHO, record=regex
    )
    output.start()
    output.finish(PATIENCE_S)
    assert [(each["global_step"], each["loss"]) for each in stored(tmp_path)] == [
        (5, 0.5), (6, 0.25)
    ]  # fmt: skip
    assert (output.training, output.global_step) == (True, 6)


def test_the_rest_of_a_split_line_is_not_mistaken_for_a_line(tmp_path: Path) -> None:
    """A line that is overwritten has many states; the last one is read, a cut one is not."""
    first_part = b"max_step 12, loss 0.5\n".rjust(MAX_LINE_BYTES + 18, b"x")  # `max_` is cut off
    last_part = b"\rstep 13, loss 0.5\n".rjust(MAX_LINE_BYTES + 3, b"x")  # `.5` is cut off
    overwritten = b"\rstep 1, loss 0.7" * 2_000 + b"\rstep 14, loss 0.5\n"
    pump(tmp_path, first_part + last_part + overwritten + b"step 15, loss 0.5\n")
    assert [record["global_step"] for record in stored(tmp_path)] == [14, 15]


def test_pipe_held_open_by_another_process_is_closed(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _: None, WHO)
    output.start()
    os.write(writing, b"said\nhalf")
    output.finish(0.3)  # the pipe is open still: it would wait for ever
    assert not output.is_alive()
    assert (tmp_path / "t.log").read_bytes() == b"said\nhalf\n"
    os.close(writing)


def test_a_changed_clock_does_not_change_the_time_between_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _: None, WHO)
    output.start()
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


def is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def test_the_heartbeat_continues_while_a_slow_disk_takes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beaten, flushed = threading.Semaphore(0), []

    def flush(_descriptor: int) -> None:
        # It ends only after further heartbeats, as if the disk took minutes.
        flushed.append(all(beaten.acquire(timeout=10) for _ in range(3)))

    monkeypatch.setattr(os, "fsync", flush)
    reading, writing = os.pipe()
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _: None, WHO)
    output.start()
    os.close(writing)
    output.finish(PATIENCE_S, beaten.release)
    assert flushed == [True, True]
    assert not output.is_alive()


def test_a_note_after_the_end_of_the_pipe_is_kept(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _: None, WHO)
    output.start()
    os.close(writing)  # as the death of the program does
    wait_for(lambda: is_closed(reading), "the pipe's end is read", PATIENCE_S)
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


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("all is well\nbye", ""),
        ("Traceback (most recent call last):\n  File\nOSError: a\n b\nlast", "OSError: a"),
        (
            "Traceback (most recent call last):\n  x\nKeyError: 1\n\nDuring handling\n\n"
            "Traceback (most recent call last):\n  y\na.b.MyError: 2",
            "a.b.MyError: 2",
        ),
        ("Traceback (most recent call last):\n  File\nKeyboardInterrupt", "KeyboardInterrupt"),
        ("  File 'x', line 1\nSyntaxError: bad", "SyntaxError: bad"),
        ("error: data/t10k: wrong checksum", "error: data/t10k: wrong checksum"),
        ("F0000 x.cc:1] Check failed: ok", "F0000 x.cc:1] Check failed: ok"),
        ("ValueError: first\nx: error: second", "ValueError: first"),
        ("training error 0.5", ""),
        ("\x1b[1;31merror: red\x1b[0m", "error: red"),
        (
            f"{WRAPPED}Matrix size-incompatible\n\t [[{{{{node m}}}}]]",
            f"{NAME}: Matrix size-incompatible",
        ),
        (f"{WRAPPED}From /job:worker/replica:0/task:1:\nbad index", f"{NAME}: bad index"),
        (
            f"{WRAPPED}=====================\nINVALID_ARGUMENT: From /job:worker/replica:0/task:1:"
            "\nbad index",
            f"{NAME}: bad index",
        ),
        (
            f"{WRAPPED}2 root error(s) found.\n  (0) INTERNAL: x\n  (1) y",
            f"{NAME}: (0) INTERNAL: x",
        ),
        (f"{WRAPPED}W0000 00:00:17.5   50 rendezvous.cc:412] aborting\nown", f"{NAME}: own"),
        (f"{WRAPPED}\nOriginal stack trace for 'm':\n  File\nbye", NAME),
        (f"{RAISED}: Graph execution error:\n\nfrom no node\nsecond", f"{NAME}: from no node"),
        (f"{WRAPPED}own\n\nTraceback (most recent call last):\n  x\nKeyError: 1", "KeyError: 1"),
        (f"{WRAPPED}x\n{WRAPPED}y", f"{NAME}: y"),
        ("ValueError: \n\n  indented\nsecond", "ValueError: indented"),
        ("ValueError:\nTraceback (most recent call last):\n  x\nOSError: a", "OSError: a"),
        ("ValueError: a:\nb", "ValueError: a:"),
        (f"{RAISED}: From /job:ps/replica:0/task:0:\ngone\n\t [[{{node m}}]]", f"{NAME}: gone"),
    ],
)
def test_error_line(log: str, line: str) -> None:
    culprit = ErrorLineFinder()
    for each in log.encode().split(b"\n"):
        culprit.feed(each)
    assert culprit.error_line() == line


LOST_CARD = health.lost_gpu


def interface(folder: Path, name: str, flags: int) -> None:
    (folder / name).mkdir()
    (folder / name / "flags").write_text(f"{flags:#x}\n")


def test_network_of_a_task_is_found_without_its_name(tmp_path: Path) -> None:
    interface(tmp_path, "lo", 0x9)
    interface(tmp_path, "tunl0", 0x80)
    assert not health.has_network(tmp_path)
    interface(tmp_path, "eth1", 0x1003)
    assert health.has_network(tmp_path)


@pytest.fixture
def healthy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    interfaces = tmp_path / "net"
    interfaces.mkdir()
    interface(interfaces, "eth0", 0x1003)
    monkeypatch.setattr(health, "READY_FILE", tmp_path / "ready")
    monkeypatch.setattr(health, "SEEN_FILE", tmp_path / "seen")
    monkeypatch.setattr(health, "lost_gpu", lambda: LOST_CARD(interfaces, tmp_path / "known"))
    monkeypatch.setattr(health, "has_network", lambda f=health.has_network: f(interfaces))
    monkeypatch.setenv("LAB_RUNS", str(tmp_path))
    monkeypatch.setenv("LAB_TASK", "worker-0")
    return tmp_path


def test_health_of_a_task(healthy: Path) -> None:
    assert health.main(["task"]) == 1
    (healthy / "agents").mkdir()
    presence = healthy / "agents" / "worker-0.json"
    presence.touch()
    assert health.main(["task"]) == 0
    os.utime(presence, (time.time() - 20, time.time() - 20))
    assert health.main(["task"]) == 1
    presence.touch()
    assert health.main(["task"]) == 0
    (healthy / "net" / "eth0" / "flags").write_text("0x9")
    assert health.main(["task"]) == 1


def may_open(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Replace the kernel's answer, which comes from the container's cgroup."""
    monkeypatch.setattr(health.os, "access", lambda path, mode: Path(path).name in names)


@pytest.fixture
def gpus(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A healthy task's device nodes: its two GPUs, and one that it could never open."""
    (healthy / "agents").mkdir()
    (healthy / "agents" / "worker-0.json").touch()
    (healthy / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl"):
        (healthy / "dev" / name).touch()
    looked_at = (healthy / "dev", healthy / "cards")
    monkeypatch.setattr(health, "lost_gpu", lambda: LOST_CARD(*looked_at))
    monkeypatch.setenv("LAB_PROJECT", "mnist")
    may_open(monkeypatch, "nvidia0", "nvidia1")
    return healthy / "dev"


def test_a_removed_gpu_is_named(
    gpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [health.main(["task"]), health.lost_gpu()] == [0, None]
    may_open(monkeypatch, "nvidia0")
    assert health.main(["task"]) == 1
    assert capsys.readouterr().out == (
        f"GPU lost: {gpus}/nvidia1 cannot be opened: permission denied; run `docker restart"
        " mnist-worker-0-1`; repeat it after each `systemctl daemon-reload`\n"
    )
    may_open(monkeypatch, "nvidia0", "nvidia1")
    assert health.main(["task"]) == 0
    health.SEEN_FILE.unlink()
    (gpus / "nvidia0").unlink()
    assert health.main(["task"]) == 1
    assert f"GPU lost: {gpus}/nvidia0 is missing; run `docker restart" in capsys.readouterr().out


def test_an_added_gpu_is_no_fault(gpus: Path) -> None:
    assert health.main(["task"]) == 0
    (gpus / "nvidia7").touch()
    assert health.lost_gpu() is None
    (gpus / "nvidia2").unlink()
    assert health.lost_gpu() is None


def test_pause_health_needs_no_volume(healthy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_RUNS")
    assert health.main(["anchor"]) == 1
    (healthy / "ready").touch()
    assert health.main(["anchor"]) == 0


def test_first_check_returns_at_once_and_a_later_one_watches(
    healthy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, looks
        now, looks = now + seconds, looks + 1
        if looks == 130:
            (healthy / "ready").unlink()

    monkeypatch.setattr(health.time, "monotonic", lambda: now)
    monkeypatch.setattr(health.time, "sleep", sleep)
    (healthy / "ready").touch()
    assert (health.main(["anchor"]), looks) == (0, 0)
    assert (health.main(["anchor"]), looks, now) == (0, 120, health.WATCH_S)
    # The link fails while the next check runs: it is reported at once, and so is the recovery.
    assert (health.main(["anchor"]), looks) == (1, 130)
    (healthy / "ready").touch()
    assert (health.main(["anchor"]), looks) == (0, 130)


def test_health_used_wrongly() -> None:
    assert health.main([]) == 2


def test_link_of_a_pause() -> None:
    assert pause.link_of({}) == (None, None)
    environ = {"LAB_LINK_RATE_BITS": "100000000", "LAB_LINK_DELAY_US": "5000"}
    assert pause.link_of(environ) == (100_000_000, 5000)
    for text in ("x", "-1", "0", "1e6", "٣", "9" * 30):
        with pytest.raises(ValueError, match="LAB_LINK_RATE_BITS is not a whole number"):
            pause.link_of({"LAB_LINK_RATE_BITS": text})


def in_network(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run code in its own network with one interface; skip where this is impossible."""
    lead = (
        "from pyroute2 import IPRoute\n"
        "n = IPRoute()\n"
        "n.link('set', index=1, state='up')\n"
        "n.link('add', ifname='v0', kind='veth', peer={'ifname': 'v1'})\n"
        "i = n.link_lookup(ifname='v0')[0]\n"
        "n.link('set', index=i, state='up')\n"
    )
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", lead + code],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        lacking("this kernel allows no network namespaces to this user")
    return done


def test_rate_of_a_link_holds_and_can_be_changed() -> None:
    done = in_network(
        "from lab.task.probes.netem import apply_link\n"
        "for rate in (1_000_000_000, 8_000_000):\n"
        "    assert apply_link(rate, None) == 'v0'\n"
        "    (q,) = n.get_qdiscs(index=i)\n"
        "    print(q.get('kind'), q.get('TCA_OPTIONS').get('TCA_TBF_PARMS')['rate'])\n"
    )
    assert done.stdout.splitlines() == ["tbf 125000000", "tbf 1000000"], done.stderr


def test_delay_of_a_link_holds_or_is_refused_by_name() -> None:
    done = in_network(
        "from lab.task.probes.netem import LinkError, apply_link\n"
        "try:\n"
        "    apply_link(8_000_000, 5000)\n"
        "    print(sorted(q.get('kind') for q in n.get_qdiscs(index=i)))\n"
        "except LinkError as error:\n"
        "    print(error)\n"
    )
    assert done.stdout in (
        "['netem', 'tbf']\n",
        "this kernel has no netem, which the delay of a link needs; load it with "
        "`modprobe sch_netem`, or remove the delay from the link\n",
    ), done.stderr


ANCHOR = (
    "import signal, sys\n"
    "from pathlib import Path\n"
    "from lab.task.probes import pause\n"
    "pause.READY_FILE = Path(sys.argv[1])\n"
    "sys.exit(pause.main())\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_pause_is_ready_until_stopped(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-c", ANCHOR, str(ready)], cwd=ROOT)
    wait_for(ready.exists, "the anchor is ready")
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE_S) == 0
    assert not ready.exists()


def test_pause_with_a_wrong_link(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ANCHOR, str(tmp_path / "ready")],
        cwd=ROOT,
        env={**os.environ, "LAB_LINK_RATE_BITS": "fast"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: LAB_LINK_RATE_BITS is not a whole number")
    assert not (tmp_path / "ready").exists()


def test_link_without_an_interface() -> None:
    done = in_network(
        "from lab.task.probes.netem import LinkError, apply_link\n"
        "n.link('set', index=i, state='down')\n"
        "try:\n"
        "    apply_link(8_000_000, None)\n"
        "except LinkError as error:\n"
        "    print(error)\n"
    )
    assert done.stdout == "a link needs one network interface; found: none\n", done.stderr
