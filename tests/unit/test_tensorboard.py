"""`lab tensorboard`: events of every record, files that are as old as the records, one page."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from lab.analysis.tensorboard import event_dirs, link_events, write_events
from lab.cli import main
from lab.errors import LabError
from lab.store.directory import EVENTS_FILE, RunDir
from lab.store.run_info import RunInfo
from lab.volume import RunSpec
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.conditions import lacking
from tests.support.fakes import record

RUN_ID = "20261121-0810-async-aaaa"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / RUN_ID)
    cluster = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
    made.create(RunInfo(RUN_ID, RunSpec("async"), cluster=cluster, submitted_unix=1.0))
    (made.path / "tasks").mkdir()
    write(made, "ps-0", {"kind": "start", "time_unix": 1000.0})
    for task in ("worker-0", "worker-1"):
        write(
            made,
            task,
            {"kind": "start", "time_unix": 1000.0},
            {"local_step": 100, "global_step": 210, "loss": 0.5, "time_unix": 1001.0},
            {"local_step": 300, "global_step": 400, "staleness": 2, "time_unix": 1002.0,
             "step_time_s": 0.25},
            {"kind": "eval", "accuracy": 0.75, "global_step": 400, "time_unix": 1002.5},
        )  # fmt: skip
    return made


def write(run: RunDir, task: str, *lines: dict[str, Any], moment_ns: int = 0) -> None:
    """Append records; a moment makes them independent of the clock: other than their events'."""
    with run.records(task).open("a") as file:
        file.writelines(json.dumps({**record(task, 0), **line}) + "\n" for line in lines)
    if moment_ns:
        os.utime(run.records(task), ns=(moment_ns, moment_ns))


def more(number: int = 500, loss: float = 0.1) -> dict[str, Any]:
    return {"global_step": number, "loss": loss, "time_unix": 1004.0}


def file_of(run: RunDir, task: str) -> Path:
    return run.path / "tb" / task / EVENTS_FILE


def events(run: RunDir, task: str) -> list[tuple[float, int, dict[str, float]]]:
    """TensorBoard's own reader, with checksums."""
    first, *others = LegacyEventFileLoader(str(file_of(run, task))).Load()
    assert first.file_version == "brain.Event:2"
    return [
        (each.wall_time, each.step, {v.tag: v.simple_value for v in each.summary.value})
        for each in others
    ]


def test_every_record_with_data_is_an_event(run: RunDir) -> None:
    written = write_events(run)
    assert [path.parent.name for path in written] == ["worker-0", "worker-1"]
    assert events(run, "worker-0") == [
        (1001.0, 210, {"training/loss": 0.5, "work/local_step": 100.0}),
        (1002.0, 400, {"training/staleness": 2.0, "work/local_step": 300.0,
                       "work/local_steps_per_s": 200.0, "work/step_time_ms": 250.0}),
        (1002.5, 400, {"training/accuracy": 0.75}),
    ]  # fmt: skip


def test_invalid_values_are_left_out(run: RunDir, notices: list[str]) -> None:
    run.records("worker-0").unlink()
    write(
        run,
        "worker-0",
        {"global_step": 1, "loss": float("nan"), "time_unix": 1e300},
        {"global_step": 2, "loss": float("inf"), "staleness": 1, "time_unix": 1003.0},
        {"loss": 0.5},
        {"local_step": 7, "loss": 0.25, "time_unix": float("nan")},
        {"global_step": -(2**62), "loss": "low", "staleness": 3, "time_unix": -1.0},
    )
    write_events(run)
    assert events(run, "worker-0") == [
        (1003.0, 2, {"training/staleness": 1.0}),
        (1003.0, 7, {"training/loss": 0.25, "work/local_step": 7.0}),
        (1003.0, -(2**62), {"training/staleness": 3.0}),
    ]
    (line,) = notices
    assert "wrong type of loss" in line


@pytest.mark.parametrize(
    ("steps", "speeds"),
    [
        # The clock is changed: attempt, local step, time, and time since the begin.
        ([(0, 0, 1000.0, 0.0), (0, 10, 4601.0, 1.0), (0, 20, 1002.0, 2.0)], [None, 10.0, 10.0]),
        ([(0, 100, 1000.0, None), (0, 200, 1001.0, None), (1, 50, 1002.0, None),
          (1, 60, 1003.0, None)], [None, 100.0, None, 10.0]),
    ],
    ids=["a changed clock", "a second attempt"],
)  # fmt: skip
def test_speeds_are_those_of_one_attempt(
    run: RunDir, steps: list[Any], speeds: list[float | None]
) -> None:
    run.records("worker-0").unlink()
    names = ("attempt", "local_step", "time_unix", "elapsed_s")
    lines = [dict(zip(names, each, strict=True)) for each in steps]
    write(run, "worker-0", *({**line, "global_step": n} for n, line in enumerate(lines)))
    write_events(run)
    found = [each.get("work/local_steps_per_s") for _, _, each in events(run, "worker-0")]
    assert found == speeds


def test_files_are_written_anew_only_where_records_are_newer(run: RunDir, tmp_path: Path) -> None:
    write_events(run)
    assert write_events(run) == []
    write(run, "worker-1", more(), moment_ns=1)
    assert [path.parent.name for path in write_events(run)] == ["worker-1"]
    assert events(run, "worker-1")[-1][1] == 500
    assert [path.name for path in file_of(run, "worker-1").parent.iterdir()] == [EVENTS_FILE]
    # A later task gets a file, also beside those that are appended to.
    link_events({"": run}, tmp_path / "shown")
    write(run, "ps-0", more(7), moment_ns=1)
    assert write_events(run, append=True)
    link_events({"": run}, tmp_path / "shown")
    assert (tmp_path / "shown/ps-0" / EVENTS_FILE).is_file()
    assert not write_events(run, append=True)


def test_files_grow_while_a_run_does(run: RunDir) -> None:
    write_events(run)
    path, other = file_of(run, "worker-1"), file_of(run, "worker-0")
    reader = LegacyEventFileLoader(str(path))  # has it open, as a TensorBoard that is up
    before, untouched = [event.step for event in reader.Load()], other.stat()
    for nth in (1, 2):
        write(run, "worker-1", more(500 * nth, 0.5 / nth), moment_ns=nth)
        assert not write_events(run, append=True)
        assert [event.step for event in reader.Load()] == [500 * nth]
    assert [number for _, number, _ in events(run, "worker-1")] == [*before[1:], 500, 1000]
    assert path.stat().st_mtime_ns == 2
    assert other.stat() == untouched
    grown = path.read_bytes()
    assert not write_events(run, append=True)
    assert path.read_bytes() == grown
    path.unlink()
    write_events(run)  # an appended file equals one that is written at once
    assert path.read_bytes() == grown


def shown(run: RunDir, task: str) -> list[tuple[int, float]]:
    """The step and the value of each loss that a TensorBoard shows for a task."""
    board = EventAccumulator(str(run.path / "tb" / task), size_guidance={"tensors": 0}).Reload()
    losses = board.Tensors("training/loss") if "training/loss" in board.Tags()["tensors"] else []
    return [(each.step, float(tensor_util.make_ndarray(each.tensor_proto))) for each in losses]


@pytest.mark.parametrize("others", [0, 9])
def test_records_of_a_replaced_file_replace_the_shown_ones(run: RunDir, others: int) -> None:
    """A TensorBoard reads a file from where it stopped, so the file cannot be written anew."""
    write_events(run)
    path = file_of(run, "worker-1")
    reader = LegacyEventFileLoader(str(path))
    list(reader.Load())
    run.records("worker-1").unlink()
    write(run, "worker-1", {"kind": "start", "time_unix": 2000.0}, moment_ns=1)
    expected: list[tuple[int, float]] = []
    for n in range(others + 1):
        if n:
            write(run, "worker-1", more(5 * n, 2.0 * n), moment_ns=n + 1)
            expected.append((5 * n, 2.0 * n))
        assert not write_events(run, append=True)
        assert shown(run, "worker-1") == expected
    read = [value.simple_value for event in reader.Load() for value in event.summary.value]
    assert read == [loss for _, loss in expected]


@contextlib.contextmanager
def full_at(size: int) -> Iterator[None]:
    """The disk is full where a file has this size: the part before it is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("count", "append"), [(500, True), (1, False)])
def test_a_disk_that_fills_up_leaves_the_old_events(run: RunDir, count: int, append: bool) -> None:
    write_events(run)
    path = file_of(run, "worker-1")
    before = path.read_bytes()
    write(run, "worker-1", *[more()] * count, moment_ns=1)
    with full_at(len(before) + 10), pytest.raises(OSError, match="File too large"):
        write_events(run, append=append)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [EVENTS_FILE]
    write_events(run, append=append)
    assert len(events(run, "worker-1")) == 3 + count


def test_nothing_is_written_through_a_link(run: RunDir, tmp_path: Path) -> None:
    write_events(run)
    other, path = tmp_path / "other", file_of(run, "worker-1")
    path.rename(other)
    path.symlink_to(other)
    before = other.read_bytes()
    write(run, "worker-1", more(), moment_ns=1)
    with pytest.raises(OSError, match="symbolic link"):
        write_events(run, append=True)
    assert other.read_bytes() == before
    (run.path / "tb").rename(tmp_path / "elsewhere")
    (run.path / "tb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match=r"tb is a link, and `lab` does not write to it; remove it"):
        write_events(run)


@pytest.mark.parametrize(
    ("folders", "shown_as"),
    [
        (("tb/evaluator-0", "my/logs", "my/logs/deeper", "worker-0", "worker-0/train"),
         {"evaluator-0": "tb/evaluator-0", "own/my/logs": "my/logs", "own/worker-0": "worker-0"}),
        ((".",), {"own": "."}),
    ],
)  # fmt: skip
def test_a_programs_own_summaries_are_shown_beside(
    run: RunDir, tmp_path: Path, folders: tuple[str, ...], shown_as: dict[str, str]
) -> None:
    write_events(run)
    for folder in folders:
        (run.path / folder).mkdir(parents=True, exist_ok=True)
        (run.path / folder / "events.out.tfevents.1.host").write_bytes(b"")
    wanted = {"worker-0": "tb/worker-0", "worker-1": "tb/worker-1", **shown_as}
    assert event_dirs(run) == {name: run.path / folder for name, folder in wanted.items()}
    link_events({"": run, "other": run}, tmp_path / "page")
    for name in shown_as:
        assert (tmp_path / "page" / name / "events.out.tfevents.1.host").is_file()
    assert (tmp_path / "page/other/worker-0" / EVENTS_FILE).is_file()


def test_files_alone(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_RUNS_DIR", str(run.path.parent))
    assert main(["tensorboard", "--write-only"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(file_of(run, f"worker-{n}")) for n in (0, 1)]
    assert "event files: 2 written" in err
    assert main(["tensorboard", "last", RUN_ID, str(run.path), "--write-only"]) == 0
    assert capsys.readouterr().out == ""


def test_without_a_run_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tensorboard", "--runs-dir", str(tmp_path)]) == 2
    assert "error: no run in " in capsys.readouterr().err


@pytest.fixture
def page(run: RunDir) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """TensorBoard as a user starts it, and its address."""
    command = [sys.executable, "-m", "lab", "tensorboard", "last"]
    with subprocess.Popen(
        [*command, "--runs-dir", str(run.path.parent)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def asked(address: str) -> Any:
    """The answer of a page of TensorBoard."""
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  (http, see above)
        return json.load(answer)


def test_the_page_is_of_this_machine_alone(
    page: tuple[subprocess.Popen[str], str], run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    if not Path("/proc/self/maps").exists():
        lacking("no /proc/PID/maps here, which the test reads")
    process, address = page
    assert address.startswith("http://127.0.0.1:")
    assert asked(f"{address}data/environment")["window_title"] == "lab"
    known = psutil.Process(process.pid)
    listening = [each.laddr.ip for each in known.net_connections() if each.status == "LISTEN"]
    assert (listening, known.children()) == (["127.0.0.1"], [])
    # TensorFlow's import would take longer than the whole command.
    assert "_pywrap_tensorflow" not in Path(f"/proc/{process.pid}/maps").read_text()
    links = Path(asked(f"{address}data/logdir")["logdir"])
    assert (links / "worker-0" / EVENTS_FILE).is_file()
    write(run, "worker-0", more(), moment_ns=1)  # it follows a run that is under way
    wait_for(lambda: len(events(run, "worker-0")) > 3, "the new events")
    assert events(run, "worker-0")[-1][1] == 500
    other = file_of(run, "worker-1").rename(run.path / "other")
    file_of(run, "worker-1").symlink_to(other)
    write(run, "worker-1", more(), moment_ns=1)
    assert process.stderr is not None
    assert any(f"run {RUN_ID} is no longer updated" in line for line in process.stderr)
    port = address.rstrip("/").rpartition(":")[2]
    arguments = ["tensorboard", "last", "--runs-dir", str(run.path.parent), "--port", port]
    assert main(arguments) == 1
    assert f"error: port {port} of 127.0.0.1 cannot be used; use another" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert not links.exists()
