"""`lab tensorboard`: events of every record, files that are as old as the records, one page."""

from __future__ import annotations

import contextlib
import importlib
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

import pytest
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator
from tensorboard.util import tensor_util

from lab.cli import main
from lab.errors import LabError
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import RunSpec
from lab.task.protocol.states import State
from lab.tensorboard.export import EVENTS_FILE, event_dirs, link_events, write_events
from tests.support.agents import PATIENCE_S
from tests.support.fakes import record
from tests.support.specs import update

RUN_ID = "20261121-0810-async-aaaa"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / RUN_ID)
    made.create(
        RunInfo(
            RUN_ID,
            RunSpec("async"),
            cluster={"ps": ["a:1"], "worker": ["b:1", "c:1"]},
            submitted_unix=1.0,
        )
    )
    (made.path / "tasks").mkdir()
    write(made, "ps-0", record("ps-0", 0, "start", time_unix=1000.0))
    for task in ("worker-0", "worker-1"):
        write(
            made,
            task,
            record(task, 0, "start", time_unix=1000.0),
            step(task, 1, local_step=100, global_step=210, loss=0.5, time_unix=1001.0),
            step(task, 2, local_step=300, global_step=400, staleness=2, time_unix=1002.0,
                 step_time_s=0.25),
            record(task, 3, "eval", accuracy=0.75, global_step=400, time_unix=1002.5),
        )  # fmt: skip
    return made


def step(task: str, seq: int, **fields: object) -> dict[str, object]:
    return record(task, seq, "step", **fields)


def write(run: RunDir, task: str, *lines: object) -> None:
    with run.records(task).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def events(run: RunDir, task: str) -> list[tuple[float, int, dict[str, float]]]:
    """TensorBoard's own reader, with checksums."""
    path = run.path / "tb" / task / EVENTS_FILE
    loader = LegacyEventFileLoader(str(path))
    first, *others = loader.Load()
    assert first.file_version == "brain.Event:2"
    return [
        (each.wall_time, each.step, {v.tag: v.simple_value for v in each.summary.value})
        for each in others
    ]


def test_every_record_with_data_is_an_event(run: RunDir) -> None:
    written = write_events(run, print)
    assert [path.parent.name for path in written] == ["worker-0", "worker-1"]
    assert events(run, "worker-0") == [
        (1001.0, 210, {"training/loss": 0.5, "work/local_step": 100.0}),
        (1002.0, 400, {"training/staleness": 2.0, "work/local_step": 300.0,
                       "work/local_steps_per_s": 200.0, "work/step_time_ms": 250.0}),
        (1002.5, 400, {"training/accuracy": 0.75}),
    ]  # fmt: skip


def test_invalid_values_are_left_out(run: RunDir) -> None:
    run.records("worker-0").unlink()
    write(
        run,
        "worker-0",
        step("worker-0", 0, global_step=1, loss=float("nan"), time_unix=1e300),
        step("worker-0", 1, global_step=2, loss=float("inf"), staleness=1, time_unix=1003.0),
        step("worker-0", 2, loss=0.5),
        step("worker-0", 3, local_step=7, loss=0.25, time_unix=float("nan")),
        step("worker-0", 4, global_step=-(2**62), loss="low", staleness=3, time_unix=-1.0),
    )
    output: list[str] = []
    write_events(run, output.append)
    assert events(run, "worker-0") == [
        (1003.0, 2, {"training/staleness": 1.0}),
        (1003.0, 7, {"training/loss": 0.25, "work/local_step": 7.0}),
        (1003.0, -(2**62), {"training/staleness": 3.0}),
    ]
    assert len(output) == 1
    assert "wrong type of loss" in output[0]


def test_a_changed_clock_changes_no_speed(run: RunDir) -> None:
    run.records("worker-0").unlink()
    write(run, "worker-0", *(
        step("worker-0", n, local_step=10 * n, global_step=n, time_unix=at, elapsed_s=float(n))
        for n, at in enumerate((1000.0, 4601.0, 1002.0))
    ))  # fmt: skip
    write_events(run, print)
    found = [each.get("work/local_steps_per_s") for _, _, each in events(run, "worker-0")]
    assert found == [None, 10.0, 10.0]


def test_a_second_attempt_has_its_own_speed(run: RunDir) -> None:
    run.records("worker-0").unlink()
    attempts = ((0, 100, 1000.0), (0, 200, 1001.0), (1, 50, 1002.0), (1, 60, 1003.0))
    write(run, "worker-0", *(
        {**step("worker-0", n, local_step=local, global_step=local, time_unix=at), "attempt": which}
        for n, (which, local, at) in enumerate(attempts)
    ))  # fmt: skip
    write_events(run, print)
    found = [each.get("work/local_steps_per_s") for _, _, each in events(run, "worker-0")]
    assert found == [None, 100.0, None, 10.0]


def test_files_are_written_anew_only_where_records_are_newer(run: RunDir) -> None:
    write_events(run, print)
    assert write_events(run, print) == []
    write(run, "worker-1", step("worker-1", 4, global_step=500, loss=0.1, time_unix=1004.0))
    os.utime(run.records("worker-1"), ns=(1, 1))  # independent of the clock: of another moment
    assert [path.parent.name for path in write_events(run, print)] == ["worker-1"]
    assert events(run, "worker-1")[-1][1] == 500
    assert sorted(path.name for path in (run.path / "tb/worker-1").iterdir()) == [EVENTS_FILE]


def moved(run: RunDir, task: str, moment_ns: int) -> None:
    """Independent of the clock: its records are of another moment than its events."""
    os.utime(run.records(task), ns=(moment_ns, moment_ns))


def test_files_grow_while_a_run_does(run: RunDir) -> None:
    write_events(run, print)
    path = run.path / "tb/worker-1" / EVENTS_FILE
    reader = LegacyEventFileLoader(str(path))  # has it open, as a TensorBoard that is up
    before = [event.step for event in reader.Load()]
    untouched = (run.path / "tb/worker-0" / EVENTS_FILE).stat()
    for nth in (1, 2):
        more = step("worker-1", 3 + nth, global_step=500 * nth, loss=0.5 / nth, time_unix=1004.0)
        write(run, "worker-1", more)
        moved(run, "worker-1", nth)
        assert not write_events(run, print, append=True)
        assert [event.step for event in reader.Load()] == [500 * nth]
    assert [number for _, number, _ in events(run, "worker-1")] == [*before[1:], 500, 1000]
    assert path.stat().st_mtime_ns == 2
    assert (run.path / "tb/worker-0" / EVENTS_FILE).stat() == untouched
    assert not write_events(run, print, append=True)
    assert len(events(run, "worker-1")) == len(before) - 1 + 2
    # An appended file equals one that is written at once.
    grown = path.read_bytes()
    path.unlink()
    write_events(run, print)
    assert path.read_bytes() == grown


def shown(run: RunDir, task: str) -> list[tuple[int, float]]:
    """The step and the value of each loss that a TensorBoard shows for a task."""
    board = EventAccumulator(str(run.path / "tb" / task), size_guidance={"tensors": 0}).Reload()
    losses = board.Tensors("training/loss") if "training/loss" in board.Tags()["tensors"] else []
    return [(each.step, float(tensor_util.make_ndarray(each.tensor_proto))) for each in losses]


@pytest.mark.parametrize("others", [0, 1, 2, 9])
def test_records_of_a_replaced_file_replace_the_shown_ones(run: RunDir, others: int) -> None:
    """A TensorBoard reads a file from where it stopped, so the file cannot be written anew."""
    write_events(run, print)
    path = run.path / "tb/worker-1" / EVENTS_FILE
    reader = LegacyEventFileLoader(str(path))
    list(reader.Load())
    run.records("worker-1").unlink()
    write(run, "worker-1", record("worker-1", 0, "start", time_unix=2000.0))
    expected = []
    for n in range(others + 1):
        if n:
            more = step("worker-1", n, global_step=5 * n, loss=2.0 * n, time_unix=2000.0 + n)
            write(run, "worker-1", more)
            expected.append((5 * n, 2.0 * n))
        moved(run, "worker-1", n + 1)
        assert not write_events(run, print, append=True)
        assert shown(run, "worker-1") == expected
    read = [value.simple_value for event in reader.Load() for value in event.summary.value]
    assert read == [loss for _, loss in expected]
    before = path.read_bytes()
    moved(run, "worker-1", 100)
    assert not write_events(run, print, append=True)
    assert path.read_bytes() == before


def test_a_later_task_gets_a_file(run: RunDir, tmp_path: Path) -> None:
    write_events(run, print)
    (tmp_path / "shown").mkdir()
    link_events({"": run}, tmp_path / "shown")
    write(run, "ps-0", step("ps-0", 1, global_step=7, loss=0.1, time_unix=1004.0))
    moved(run, "ps-0", 1)
    assert write_events(run, print, append=True)
    link_events({"": run}, tmp_path / "shown")
    assert (tmp_path / "shown/ps-0" / EVENTS_FILE).is_file()
    assert not write_events(run, print, append=True)


def test_runs_are_followed_until_they_have_ended(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = importlib.import_module("lab.cli.commands.tensorboard")
    monkeypatch.setattr(command, "_PERIOD_S", 0.001)
    write_events(run, print)
    ended = RunDir(tmp_path / "20261121-0900-async-bbbb")
    ended.create(RunInfo(ended.run_id, RunSpec("async"), state=State.SUCCEEDED))
    looks: list[str] = []

    def look(each: RunDir, _say: object, *, append: bool) -> list[Path]:
        assert append
        looks.append(each.run_id)
        if len(looks) == 2:
            update(run, state=State.SUCCEEDED)
        return [each.path]

    with monkeypatch.context() as patch:
        patch.setattr("lab.tensorboard.export.write_events", look)
        command._follow({"a": run, "b": ended}, tmp_path / "shown")
    assert looks == [RUN_ID] * 3  # one more than under way: its last write
    assert (tmp_path / "shown/a/worker-0").is_symlink()

    update(run, state=State.TRAINING)
    for task in ("worker-0", "worker-1"):
        moved(run, task, 1)
        (run.path / "tb" / task / EVENTS_FILE).unlink()
        (run.path / "tb" / task).rmdir()
        (run.path / "tb" / task).symlink_to(tmp_path)
    capsys.readouterr()
    command._follow({"a": run}, tmp_path / "shown")
    output = capsys.readouterr().err
    assert f"warning: run {RUN_ID} is no longer updated: " in output
    assert "is a link" in output


@contextlib.contextmanager
def full_at(size: int) -> Iterator[None]:
    """The disk is full where a file has this size: the part before it is written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("events_more", [1, 500])
def test_a_disk_that_fills_up_leaves_no_half_event(run: RunDir, events_more: int) -> None:
    write_events(run, print)
    path = run.path / "tb/worker-1" / EVENTS_FILE
    before = path.read_bytes()
    for n in range(events_more):
        write(run, "worker-1", step("worker-1", 4 + n, global_step=500, loss=0.1, time_unix=1004.0))
    moved(run, "worker-1", 1)
    with full_at(len(before) + 10), pytest.raises(OSError, match="File too large"):
        write_events(run, print, append=True)
    assert path.read_bytes() == before
    write_events(run, print, append=True)
    assert len(events(run, "worker-1")) == 3 + events_more


def test_events_are_appended_without_tensorflow(run: RunDir) -> None:
    """Its import would take longer than the whole command."""
    write_events(run, print)
    before = events(run, "worker-1")
    write(run, "worker-1", step("worker-1", 4, global_step=500, loss=0.1, time_unix=1004.0))
    moved(run, "worker-1", 1)
    code = (
        "import sys; from pathlib import Path; from lab.run.store import RunDir\n"
        "from lab.tensorboard.export import write_events\n"
        "write_events(RunDir(Path(sys.argv[1])), print, append=True)\n"
        "print('tensorflow' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(run.path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert done.stdout.split() == ["False"]
    assert len(events(run, "worker-1")) == len(before) + 1


def test_nothing_is_appended_through_a_link(run: RunDir, tmp_path: Path) -> None:
    write_events(run, print)
    other = tmp_path / "other"
    path = run.path / "tb/worker-1" / EVENTS_FILE
    path.rename(other)
    path.symlink_to(other)
    before = other.read_bytes()
    write(run, "worker-1", step("worker-1", 4, global_step=500, loss=0.1, time_unix=1004.0))
    moved(run, "worker-1", 1)
    with pytest.raises(OSError, match="symbolic link"):
        write_events(run, print, append=True)
    assert other.read_bytes() == before


def test_a_disk_that_is_full_leaves_the_old_file(run: RunDir) -> None:
    write_events(run, print)
    before = (run.path / "tb/worker-0" / EVENTS_FILE).read_bytes()
    write(run, "worker-0", step("worker-0", 4, global_step=500, loss=0.1))
    with full_at(100), pytest.raises(OSError, match="File too large"):
        write_events(run, print)
    assert (run.path / "tb/worker-0" / EVENTS_FILE).read_bytes() == before
    assert sorted(path.name for path in (run.path / "tb/worker-0").iterdir()) == [EVENTS_FILE]


def test_nothing_is_written_through_a_link(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (run.path / "tb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LabError, match=r"tb is a link, and `lab` does not write to it; remove it"):
        write_events(run, print)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_programs_own_summaries_are_shown_beside(run: RunDir, tmp_path: Path) -> None:
    write_events(run, print)
    own = ("my/logs", "my/logs/deeper", "worker-0", "worker-0/train")
    for folder in ("tb/worker-0", "tb/evaluator-0", *own):
        (run.path / folder).mkdir(parents=True, exist_ok=True)
        (run.path / folder / "events.out.tfevents.1.host").write_bytes(b"")
    assert event_dirs(run) == {
        "worker-0": run.path / "tb/worker-0",
        "worker-1": run.path / "tb/worker-1",
        "evaluator-0": run.path / "tb/evaluator-0",
        "own/my/logs": run.path / "my/logs",
        "own/worker-0": run.path / "worker-0",
    }
    (tmp_path / "page").mkdir()
    link_events({"": run, "other": run}, tmp_path / "page")
    assert (tmp_path / "page/own/my/logs/deeper/events.out.tfevents.1.host").is_file()
    assert (tmp_path / "page/other/worker-0" / EVENTS_FILE).is_file()


def test_summaries_in_the_runs_own_directory_hide_nothing(run: RunDir, tmp_path: Path) -> None:
    write_events(run, print)
    (run.path / "events.out.tfevents.1.host").write_bytes(b"")
    assert event_dirs(run) == {
        "own": run.path,
        "worker-0": run.path / "tb/worker-0",
        "worker-1": run.path / "tb/worker-1",
    }
    (tmp_path / "page").mkdir()
    link_events({"": run}, tmp_path / "page")
    assert (tmp_path / "page/own/events.out.tfevents.1.host").is_file()


def test_files_alone(
    run: RunDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB_RUNS_DIR", str(run.path.parent))
    assert main(["tensorboard", "--write-only"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(run.path / "tb" / f"worker-{n}" / EVENTS_FILE) for n in (0, 1)]
    assert "event files: 2 written" in err
    assert main(["tensorboard", "last", RUN_ID, "--write-only"]) == 0
    assert capsys.readouterr().out == ""


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tensorboard", "--runs-dir", str(tmp_path)]) == 2
    assert "error: no run in " in capsys.readouterr().err
    assert main(["tensorboard", "--port", "70000"]) == 2
    assert "--port: '70000' is not a whole number from 1 to 65,535" in capsys.readouterr().err


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


def listening(pid: int) -> list[str]:
    """The addresses, in the kernel's hexadecimals, on which a process listens."""
    sockets = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a file that it has closed meanwhile
            sockets.add(str(path.readlink()))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in sockets:
                found.append(cells[1].partition(":")[0])
    return found


def asked(address: str) -> Any:
    """The answer of a page of TensorBoard."""
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310  (http, see above)
        return json.load(answer)


@pytest.mark.skipif(sys.platform != "linux", reason="who listens is asked of /proc")
def test_the_page_is_of_this_machine_alone(
    page: tuple[subprocess.Popen[str], str], run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    process, address = page
    assert address.startswith("http://127.0.0.1:")
    assert asked(f"{address}data/environment")["window_title"] == "lab"
    assert listening(process.pid) == ["0100007F"]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    assert children == ""
    assert "_pywrap_tensorflow" not in Path(f"/proc/{process.pid}/maps").read_text()
    links = Path(asked(f"{address}data/logdir")["logdir"])
    assert (links / "worker-0" / EVENTS_FILE).is_file()
    port = address.rstrip("/").rpartition(":")[2]
    arguments = ["tensorboard", "last", "--runs-dir", str(run.path.parent), "--port", port]
    assert main(arguments) == 1
    assert f"error: port {port} of 127.0.0.1 cannot be used; use another" in capsys.readouterr().err
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 130
    assert not links.exists()
