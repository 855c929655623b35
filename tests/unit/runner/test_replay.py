"""Replays: what a client has seen at a time, the recordings, and the command."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

import lab
from lab.protocol.records.reader import read_records
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import FOLLOWS, State
from lab.runner.replay import SAMPLES, Player, Recording, recordings
from lab.runner.store.directory import RunDir, read_statuses
from lab.runner.view import View
from tests.support import recorded
from tests.support.cli import Cli, replace_backends
from tests.support.specs import HOSTILE, update

RUN = "20260101-0000-async-aaaa"
NAMES = list(recordings())
ALL_RUNS = sorted(path for path in SAMPLES.iterdir() if path.is_dir())


def read(name: str) -> Recording:
    return Recording.read(recordings()[name].directory)


def states(recording: Recording, task: str) -> list[State]:
    return [
        event.status.state
        for event in recording.events
        if event.task == task and event.status is not None
    ]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    replace_backends(monkeypatch)
    return tmp_path


@pytest.fixture
def run(here: Path) -> RunDir:
    return recorded.make(here / "runs", RUN, steps=600)


@pytest.mark.parametrize("path", ALL_RUNS, ids=lambda path: path.name)
def test_a_recorded_run_begins_pending_and_ends_as_it_was_recorded(path: Path) -> None:
    directory = RunDir(path)
    recording, tasks = Recording.read(directory), directory.read().task_names()
    newest = {each.task: each.status for each in recording.events if each.status is not None}
    assert newest == read_statuses(directory, directory.read())
    for task in tasks:
        replayed = [each.record for each in recording.events if each.task == task and each.record]
        assert replayed == list(read_records(directory.records(task)))
    for task in tasks:
        found = states(recording, task)
        assert all(b is a or b in FOLLOWS[a] for a, b in pairwise(found)), found
    moments = [event.at_s for event in recording.events]
    assert moments == sorted(moments)
    assert 0 <= moments[0] <= moments[-1] <= recording.length_s


def test_a_task_that_restarts_has_each_of_its_attempts(run: RunDir) -> None:
    ended = recorded.BEGAN_UNIX + 3.5
    status = {
        "task": "worker-1", "state": "failed", "attempt": 1, "reason": "exit code 1",
        "started_unix": ended + 0.1, "ended_unix": recorded.BEGAN_UNIX + 9,
        "earlier": [{"reason": "killed", "cause": "signal", "started_unix": ended - 1,
                     "ended_unix": ended, "global_step": 5}],
    }  # fmt: skip
    run.status("worker-1").write_text(json.dumps(status))
    found = [event.status for event in Recording.read(run).events if event.task == "worker-1"]
    shown = [(each.state.value, each.attempt, each.reason) for each in found if each is not None]
    assert shown == [
        ("pending", 0, ""),
        ("starting", 0, ""),
        ("training", 0, ""),
        ("starting", 1, "killed"),
        ("starting", 1, "killed"),
        ("training", 1, ""),
        ("failed", 1, "exit code 1"),
    ]


@pytest.mark.parametrize("time_unix", [None, "soon", math.nan, -1e300, 0, 1e300, 2**63])
def test_a_wrong_time_stays_within_the_run_and_its_order(run: RunDir, time_unix: object) -> None:
    began = recorded.BEGAN_UNIX
    lines = [
        {"kind": "start", "time_unix": began + 3},
        {"kind": "step", "local_step": 1, "time_unix": time_unix},
        {"kind": "step", "local_step": 2, "time_unix": began + 4},
    ]
    run.records("worker-0").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    recording = Recording.read(run)
    events = [each for each in recording.events if each.task == "worker-0" and each.record]
    assert [each.record["kind"] for each in events] == ["start", "step", "step"]
    assert all(0 <= each.at_s <= recording.length_s for each in events)
    assert events[1].at_s in {3.0, recording.length_s}


def test_a_forged_status_keeps_its_row_and_the_order_of_states(run: RunDir) -> None:
    began = recorded.BEGAN_UNIX
    status = TaskStatus("ps-0", State.FAILED, started_unix=began + 5, ended_unix=began + 1)
    run.status("worker-0").write_text(status.to_json())
    lines = [{"kind": "step", "time_unix": began}, {"kind": "event", "status": "ready"}]
    run.records("worker-0").write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    recording = Recording.read(run)
    assert states(recording, "worker-0") == [State.PENDING, State.TRAINING, State.FAILED]
    assert {each.status.task for each in recording.events if each.status} == set(
        recording.info.task_names()
    )


def test_the_use_of_gpus_is_replayed(run: RunDir) -> None:
    lines = [
        {"time_unix": recorded.BEGAN_UNIX + second, "task": "worker-0", "gpu": gpu,
         "utilisation": use}
        for second, gpu, use in ((1, "GPU-a", 0.5), (1, "GPU-b", 0.25), (2, "GPU-a", 7), (3, 4, 1))
    ]  # fmt: skip
    run.gpu_samples.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    found = [(each.at_s, each.gpus) for each in Recording.read(run).events if not each.task]
    assert found == [(1.0, {"worker-0": 0.375}), (2.0, {})]


class Watch(View):
    def __init__(self, player: Player) -> None:
        super().__init__(player.recording.info, player.clock)
        self.clock, self.ticks, self.at = player.clock, 0, []

    def status(self, status: TaskStatus) -> None:
        self.at.append((status.task, status.state, self.clock.monotonic()))

    def tick(self) -> None:
        self.ticks += 1


@pytest.mark.parametrize(("speed", "slept_s", "ends_s"), [(10, 0, 4.1), (1, 0, 41), (10, 60, 4.1)])
def test_a_replay_has_its_speed_also_after_ctrl_z(
    monkeypatch: pytest.MonkeyPatch, speed: float, slept_s: float, ends_s: float
) -> None:
    now = [1000.0]

    def sleep(seconds: float) -> None:
        asleep = slept_s if 1001 < now[0] < 1001 + seconds else 0
        now[0] += seconds + asleep

    monkeypatch.setattr("lab.runner.replay.time.monotonic", lambda: now[0])
    monkeypatch.setattr("lab.runner.replay.time.sleep", sleep)
    recording = read("straggler")
    player = Player(recording)
    view = Watch(player)
    player.play(view, speed)
    assert now[0] - 1000 - slept_s == pytest.approx(ends_s, abs=1.1 if slept_s else 0.3)
    assert view.ticks > ends_s / 0.06 - 25
    zero = recording.info.zero_unix
    assert view.at == [
        (each.task, each.status.state, zero + each.at_s)
        for each in recording.events
        if each.status is not None
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_replay_ends_with_the_recorded_result(name: str, here: Path, cli: Cli) -> None:
    directory = recordings()[name].directory
    output = cli("attach", name, "--speed", "1000", "--json")
    assert output.out == directory.summary_path.read_text()
    assert output.err.startswith(f"replay of run {directory.run_id} of 2026-")
    for task in directory.read().task_names():
        assert f"{task}: succeeded" in output.err
    shown = cli("attach", name, "--speed=1000").out
    assert shown == cli("show", directory.run_id, "--runs-dir", str(SAMPLES)).out
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("speed", [(), ("--speed", "1000")])
def test_a_run_is_shown_again_by_its_id_or_directory(
    run: RunDir, cli: Cli, speed: tuple[str, ...]
) -> None:
    shutil.copytree(run.path, "elsewhere/copy")
    for argument in ("last", RUN[:9], str(run.path), "runs/../elsewhere/copy"):
        found = cli("attach", argument, *speed, "--json")
        assert json.loads(found.out)["run_id"] == RUN
        assert "worker-1: succeeded" in found.err
    done = lab.attach(run.path, speed="1000")
    assert (done.id, done.info.state) == (RUN, State.SUCCEEDED)


def test_the_exit_code_is_that_of_a_run_of_the_store(run: RunDir, cli: Cli) -> None:
    shutil.copytree(run.path, "elsewhere/copy")
    for each in (run, RunDir(Path("elsewhere/copy"))):
        update(each, state=State.FAILED, reason="it was too hot")
    assert f"run {RUN} failed (it was too hot)" in cli("attach", RUN, code=1).err
    assert f"run {RUN} failed" in cli("attach", "runs/" + RUN, code=1).err
    cli("attach", "elsewhere/copy")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nothing"], "no run 'nothing' in any environment; see `lab runs`"),
        (["last~1"], "error: last~1: "),
        (["./none"], "no run, directory or archive ./none"),
        (["nothing", "--web"], "no run 'nothing' in runs; see `lab runs`; recordings are late-"),
        (["--web", "--speed", "5"], "--speed needs a run; name one"),
        (["--port", "8700"], "--port needs --web; add --web"),
        (["straggler", "--speed", "0"], "--speed: '0' is not a number from 0.1 to 1,000"),
        (["straggler", "--speed", "nan"], "--speed: 'nan' is not a number"),
        (["straggler", "--speed", "10x"], "--speed: '10x' is not a number"),
        (["straggler", "last"], "unexpected argument 'last'"),
        (["runs/.."], "runs/.. has no runs"),
        (["./runs"], "./runs has 2 runs; name one of them"),
    ],
)
def test_wrong_arguments_are_named(
    run: RunDir, cli: Cli, arguments: list[str], reason: str
) -> None:
    if arguments == ["./runs"]:
        recorded.make(run.path.parent, "20260102-0000-async-bbbb", steps=100)
    error = cli("attach", *arguments, code=2).err
    assert reason in error
    assert error.count("\n") == 1


def damage_status(run: RunDir) -> None:
    run.status("worker-0").write_text('{"task": "worker-0", "state": "asleep"}')


def damage_summary(run: RunDir) -> None:
    run.summary_path.write_text("{")


@pytest.mark.parametrize(
    ("damage", "code", "reason"),
    [
        (lambda run: update(run, state=State.TRAINING), 2, "has not ended: it is training"),
        (lambda run: update(run, submitted_unix=None), 2, "ended before its tasks started"),
        (lambda run: update(run, stopped_unix=1e11), 1, "cannot be right"),
        (lambda run: update(run, stopped_unix=1.0), 1, "cannot be right"),
        (lambda run: run.info_path.write_text("{"), 1, "run.json: it is not JSON"),
        (damage_status, 1, "worker-0.json: Invalid enum value"),
        (damage_summary, 1, "summary.json: it is not JSON"),
    ],
    ids=["training", "not started", "too long", "negative", "info", "status", "summary"],
)
def test_a_damaged_run_is_an_error_of_one_line(
    run: RunDir, cli: Cli, damage: Callable[[RunDir], object], code: int, reason: str
) -> None:
    damage(run)
    run.path.rename("elsewhere")
    output = cli("attach", "./elsewhere", code=code)
    assert reason in output.err
    assert (output.err.count("\n"), output.out) == (1, "")


def test_a_hostile_recording_is_shown_safely(run: RunDir, cli: Cli) -> None:
    update(run, args=(HOSTILE,), start={"worker-1": f"after {HOSTILE}"}, cluster_file=HOSTILE)
    events = [
        {"kind": "event", "time_unix": recorded.BEGAN_UNIX + 3, "message": f"fault: {HOSTILE}"},
        {"kind": "event", "message": ["\x1b"], "time_unix": {}},
        {"kind": "step", "local_step": 2**80, "loss": "\x1b", "staleness": [], "step_time_s": 0,
         "wait_time_s": 0},
        {"kind": "step", "epoch": -1, "global_step": True, "time_unix": -5},
    ]  # fmt: skip
    text = "".join(f"{json.dumps(each)}\n" for each in events)
    run.records("worker-0").write_text(f'{text}no record\n[1]\n{{"kind": 3}}\n')
    status = TaskStatus("\x1b]0;t\x07", State.FAILED, attempt=-5, reason=HOSTILE, message=HOSTILE)
    run.status("worker-0").write_text(status.to_json())
    output = cli("attach", RUN, "--speed", "1000")
    assert "fault: <script>" in output.err
    assert not any(sign in output.err + output.out for sign in "\x1b\x07\u202e")
