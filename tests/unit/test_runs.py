"""The run in the run store: its directory, its states, and its leftovers after an abort."""

from __future__ import annotations

import contextlib
import errno
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from lab.backends import Chunk
from lab.cli import main
from lab.errors import InputError, LabError
from lab.run import discovery
from lab.run.collect import View
from lab.run.prepare import Submission, prepare
from lab.run.recovery import collect_one, collect_runs
from lab.run.run_info import RunInfo
from lab.run.runner import execute_run
from lab.run.store import RunDir, find_run, runs_dir
from lab.run.summarize import summarize
from lab.run.summary import Summary, write_summary
from lab.task.protocol import Request, RunSpec, Volume
from lab.task.protocol.experiments import EXPERIMENTS, hyperparameters, with_seed
from lab.task.protocol.states import State
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.fakes import PLAN, FakeEnvironment, end, record, train, write_records
from tests.support.specs import update

ASYNC = EXPERIMENTS["async"]


def order(tmp_path: Path, *argv: str) -> Submission:
    return Submission(
        RunSpec("async", args=argv).completed(ASYNC), PLAN, tmp_path, tmp_path / "cluster.yaml"
    )


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return prepare(order(tmp_path, "--epochs=1"), tmp_path / "runs")


@pytest.fixture
def environment(tmp_path: Path) -> FakeEnvironment:
    (tmp_path / "volume").mkdir()
    return FakeEnvironment(tmp_path / "volume")


@contextlib.contextmanager
def unseen(_info: RunInfo) -> Iterator[View]:
    yield View()


def go(run: RunDir, environment: FakeEnvironment, **changes: object) -> Summary:
    given: dict[str, Any] = {
        "boot": lambda _defer: environment,
        "found": None,
        "keep": False,
        "view": unseen,
        "notify": lambda _line: None,
    }
    return execute_run(run, **{**given, **changes})


def test_run_json_precedes_every_start(run: RunDir) -> None:
    info = run.read()
    assert info.state is State.PENDING
    assert info.hyperparameters["epochs"] == 1  # as given
    assert info.hyperparameters["batch_size"] == 100  # the program's default
    assert info.seed == info.hyperparameters["seed"]
    assert f"--seed={info.seed}" in info.spec.args
    assert info.cluster == PLAN.cluster_spec()
    assert info.plan is not None
    assert info.plan["tasks"][1]["port"] == 2222
    assert info.versions["python"]
    assert abs(info.started_unix - time.time()) < 60
    assert RunInfo.from_json(info.to_json()) == RunInfo.from_json(run.info_path.read_text())


def test_a_run_whose_files_cannot_be_copied_leaves_nothing(
    tmp_path: Path, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_old: Path, new: Path) -> None:
        new.mkdir()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("lab.run.prepare.copy_checkpoints", full)
    with pytest.raises(OSError, match="No space left"):
        prepare(replace(order(tmp_path), resumes=run), run.path.parent)
    assert list(run.path.parent.iterdir()) == [run.path]


def test_a_seed_that_is_given_stays() -> None:
    assert with_seed(ASYNC, ["--seed=7"]) == ("--seed=7",)
    assert with_seed(ASYNC, ["--seed", "7"]) == ("--seed", "7")
    first, second = with_seed(ASYNC, []), with_seed(ASYNC, [])
    assert first != second


def test_hyperparameters_are_the_programs_flags_and_the_last_one_counts() -> None:
    arguments = ["--epochs=2", "--learning_rate", "0.5", "--log_device_placement", "--epochs=3",
             "--other=1", "epochs", "--seed=odd"]  # fmt: skip
    assert hyperparameters(ASYNC, arguments) == {
        "epochs": 3,
        "learning_rate": 0.5,
        "log_device_placement": True,
        "seed": "odd",
    }


def test_a_run_from_its_start_to_its_end(run: RunDir, environment: FakeEnvironment) -> None:
    summary = go(run, environment)
    assert summary.state == State.SUCCEEDED
    assert (summary.global_step, summary.updates_conserved, summary.accuracy) == (300, True, 0.75)
    info = run.read()
    assert info.state is State.SUCCEEDED
    assert info.backend == "local"
    assert info.provenance == {"interpreter": "fake"}
    assert [task["node"] for task in info.tasks] == ["tf1", "tf2", "tf3"]
    assert info.stopped_unix == 112.5
    assert json.loads(run.summary_path.read_text())["run_id"] == run.run_id
    assert (run.path / "summary.csv").read_text().startswith("task,")
    assert (run.path / "processes.json").read_text() == "{}\n"
    home = (run.path / "tasks/worker-0.jsonl").read_bytes()
    assert home == environment.volume.records(run.run_id, "worker-0").read_bytes()
    assert environment.is_down
    assert run.complete()


def test_an_environment_that_was_up_stays_up(run: RunDir, environment: FakeEnvironment) -> None:
    go(run, environment, boot=lambda _defer: pytest.fail("booted"), found=environment)
    assert not environment.is_down


def test_keep_leaves_it_up(run: RunDir, environment: FakeEnvironment) -> None:
    go(run, environment, keep=True)
    assert not environment.is_down


def test_a_boot_that_fails_leaves_no_run(run: RunDir, environment: FakeEnvironment) -> None:
    def boot(_defer: Callable[[], None]) -> FakeEnvironment:
        raise LabError("port 2222 is in use", "end the program that uses it")

    output: list[str] = []
    with pytest.raises(LabError, match="port 2222"):
        go(run, environment, boot=boot, notify=output.append)
    assert output == [f"run {run.run_id} did not start; its directory is removed"]
    assert list(run.path.parent.iterdir()) == []


def test_a_task_that_fails_makes_the_run_fail(run: RunDir, environment: FakeEnvironment) -> None:
    def fail(volume: Volume, request: Request) -> None:
        end(volume, request.run_id, "ps-0", State.CANCELLED)
        end(volume, request.run_id, "worker-0", State.CANCELLED)
        end(volume, request.run_id, "worker-1", State.FAILED, exit_code=3)

    environment.tasks_do = fail
    summary = go(run, environment)
    assert (summary.state, summary.reason) == ("failed", "worker-1 failed: exit code 3")
    assert environment.is_down


class Breaking(FakeEnvironment):
    """An environment whose stream raises the error of `fault` once, half-way."""

    fault: Callable[[], BaseException] = KeyboardInterrupt
    left = 1

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        for chunk in super().stream(run_id, offsets, follow=follow, **more):
            yield chunk
            if self.left and chunk is not None and chunk.path.startswith("tasks/"):
                self.left -= 1
                raise self.fault()


def until_cancelled(volume: Volume, request: Request) -> None:
    """Tasks that train until they are stopped."""
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
    deadline = time.monotonic() + PATIENCE_S
    while not volume.cancel(request.run_id).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 1, local_step=2)])
    for task in request.tasks():
        end(volume, request.run_id, task, State.CANCELLED, reason="interrupted")


def test_ctrl_c_ends_the_run_and_collects_it(run: RunDir, environment: FakeEnvironment) -> None:
    breaking = Breaking(environment.root, until_cancelled)
    with pytest.raises(KeyboardInterrupt):
        go(run, breaking)
    assert (run.read().state, run.read().reason) == (State.CANCELLED, "interrupted")
    lines = run.records("worker-0").read_text().splitlines()
    assert [json.loads(line)["local_step"] for line in lines] == [1, 2]
    assert json.loads(run.summary_path.read_text())["state"] == "cancelled"
    assert breaking.is_down


def test_tensorflows_lines_are_one_notice_also_after_ctrl_c(
    run: RunDir, environment: FakeEnvironment
) -> None:
    line = b"I0000 00:00:1764000000.123456 12 cpu_feature_guard.cc:210] ready\n"
    notices: list[str] = []

    def log_twice(volume: Volume, request: Request) -> None:
        log = volume.log(request.run_id, "worker-0")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(line)
        wait_for(lambda: notices, "the notice")
        write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
        wait_for(volume.cancel(request.run_id).exists, "the cancellation")
        log.write_bytes(2 * line)
        for task in request.tasks():
            end(volume, request.run_id, task, State.CANCELLED, reason="interrupted")

    shown = View()
    shown.notice = notices.append  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        go(run, Breaking(environment.root, log_twice), view=lambda _info: shown)
    assert run.log("worker-0").read_bytes() == 2 * line
    assert sum("TensorFlow's own lines" in notice for notice in notices) == 1


def test_a_full_disk_ends_the_run_on_the_volume_too(
    run: RunDir, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.run.patience.REFUSED_S", 0.0)
    breaking = Breaking(environment.root, until_cancelled)
    breaking.fault = lambda: OSError(errno.ENOSPC, "No space left on device", "x")
    with pytest.raises(OSError, match="No space left"):
        go(run, breaking)
    assert environment.volume.cancel(run.run_id).exists()
    assert run.read().state is State.FAILED
    assert breaking.volume_stays  # it has the files that did not fit on the disk


def test_sigterm_is_like_ctrl_c(run: RunDir, environment: FakeEnvironment) -> None:
    def signals(volume: Volume, request: Request) -> None:
        write_records(volume, request.run_id, "worker-0", [record("worker-0", 0)])
        os.kill(os.getpid(), signal.SIGTERM)
        until_cancelled(volume, request)

    environment.tasks_do = signals
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert run.read().state is State.CANCELLED
    assert environment.is_down
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_detached_run_is_collected_twice(tmp_path: Path, environment: FakeEnvironment) -> None:
    environment.submit(
        Request("r1", RunSpec("async", "mnist_async.py", ("--epochs=1",)), PLAN.cluster_spec())
    )
    for thread in environment.threads:
        thread.join()
    home = tmp_path / "runs"
    output: list[str] = []
    assert collect_runs(environment, home, output.append) == []
    run = find_run("last", home)
    first = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert run.read().spec.experiment == "async"
    assert run.read().state is State.SUCCEEDED
    assert output == [f"run r1: succeeded, collected into {run.path}"]
    collect_runs(environment, home, output.append)
    assert len(output) == 1  # completely collected: nothing to do
    collect_one(environment.runs()[0], environment, home, output.append)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == first


def test_a_run_is_not_collected_again_while_it_is_complete_elsewhere(
    tmp_path: Path, environment: FakeEnvironment
) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    for thread in environment.threads:
        thread.join()
    one, two = tmp_path / "one", tmp_path / "two"
    output: list[str] = []
    collect_runs(environment, one, output.append)
    assert environment.collected() == {"r1": str(one)}
    assert collect_runs(environment, two, output.append, anywhere=True) == []
    assert output[1:] == [f"run r1 is already collected, in {one / 'r1'}"]
    assert not two.exists()
    # `lab collect` names this very directory.
    collect_runs(environment, two, output.append)
    assert (two / "r1/summary.json").is_file()
    assert environment.collected() == {"r1": str(two)}


@pytest.mark.parametrize("lie", ["", "gone", "\0", "x" * 5000, "damaged", "another"])
def test_a_note_that_is_wrong_keeps_no_run_from_being_collected(
    tmp_path: Path, environment: FakeEnvironment, lie: str
) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    for thread in environment.threads:
        thread.join()
    home = tmp_path / "runs"
    collect_runs(environment, home, lambda _line: None)
    (tmp_path / "damaged/r1").mkdir(parents=True)
    for name in ("run.json", "summary.json"):
        (tmp_path / "damaged/r1" / name).write_text("{}")
    shutil.copytree(home / "r1", tmp_path / "another/r1")
    update(RunDir(tmp_path / "another/r1"), run_id="r2")
    shutil.rmtree(home)
    environment.volume.collected("r1").write_text(str(tmp_path / lie) if lie.isalpha() else lie)
    collect_runs(environment, home, lambda _line: None, anywhere=True)
    assert RunDir(home / "r1").complete()


def test_a_run_with_files_that_stay_is_not_noted_as_collected(
    tmp_path: Path, environment: FakeEnvironment
) -> None:
    def leave(volume: Volume, request: Request) -> None:
        (volume.run(request.run_id) / "report.html").write_text("x")
        train(volume, request)

    environment.tasks_do = leave
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    for thread in environment.threads:
        thread.join()
    collect_runs(environment, tmp_path / "runs", lambda _line: None)
    assert RunDir(tmp_path / "runs/r1").complete()
    assert environment.collected() == {}


def test_an_environment_of_an_older_lab_has_no_notes(
    tmp_path: Path, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise LabError("usage: submit REQUEST | …")

    monkeypatch.setattr(environment, "collected", refuse)
    monkeypatch.setattr(environment, "mark_collected", refuse)
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    for thread in environment.threads:
        thread.join()
    collect_runs(environment, tmp_path / "runs", lambda _line: None, anywhere=True)
    assert RunDir(tmp_path / "runs/r1").complete()


def test_a_run_under_way_is_collected_in_parts(
    tmp_path: Path, environment: FakeEnvironment
) -> None:
    environment.tasks_do = lambda volume, request: write_records(
        volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)]
    )
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    home = tmp_path / "runs"
    assert collect_runs(environment, home, lambda _line: None) == ["r1"]
    assert not RunDir(home / "r1").complete()
    train(environment.volume, environment.runs()[0])
    assert collect_runs(environment, home, lambda _line: None) == []
    copy = (home / "r1/tasks/worker-0.jsonl").read_bytes()
    assert copy == environment.volume.records("r1", "worker-0").read_bytes()


def _hold(path: Path, held: Event, leave: Event) -> None:
    with RunDir(path).locked():
        held.set()
        leave.wait(PATIENCE_S)


def test_only_one_process_collects_a_run(run: RunDir) -> None:
    context = multiprocessing.get_context("spawn")
    held, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(run.path, held, leave))
    other.start()
    try:
        assert held.wait(PATIENCE_S)
        with pytest.raises(LabError, match="another process collects"), run.locked():
            pass
    finally:
        leave.set()
        other.join()
    with run.locked():
        pass


def test_a_run_is_found_by_a_unique_beginning(tmp_path: Path) -> None:
    for number, name in enumerate(("20260101-async-aa", "20260101-async-ab", "20260102-sync-aa")):
        info = RunInfo(
            name, RunSpec("async"), started_unix=float(number), submitted_unix=float(number)
        )
        RunDir(tmp_path / name).create(info)
    RunDir(tmp_path / "refused").create(RunInfo("refused", RunSpec("async"), started_unix=9.0))
    (tmp_path / "notes").mkdir()
    assert find_run("last", tmp_path).run_id == "20260102-sync-aa"
    assert find_run("last~1", tmp_path).run_id == "20260101-async-ab"
    assert find_run("last~2", tmp_path).run_id == "20260101-async-aa"
    with pytest.raises(InputError, match=r"last~3: .* has 3 runs"):
        find_run("last~3", tmp_path)
    assert find_run("20260102", tmp_path).run_id == "20260102-sync-aa"
    assert find_run("refused", tmp_path).run_id == "refused"
    with pytest.raises(InputError, match="matches 2 runs"):
        find_run("20260101", tmp_path)
    with pytest.raises(InputError, match="no run 'x'"):
        find_run("x", tmp_path)
    RunDir(tmp_path / "empty" / "refused").create(RunInfo("refused", RunSpec("async")))
    for folder in ("empty", "missing"):
        with pytest.raises(InputError, match=f"no run in .*{folder} has started"):
            find_run("last", tmp_path / folder)


_ODD = {"format": 1, "run_id": "b", "experiment": "async", "state": "failed", "odd\x1b": 1}


@pytest.mark.parametrize("damage", ["{", json.dumps(_ODD)])
def test_a_damaged_run_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    good, bad = "20260101-0900-async-aaaa", "20260102-0900-async-bbbb"
    for name in (good, bad):
        RunDir(tmp_path / name).create(RunInfo(name, RunSpec("async"), submitted_unix=1.0))
    RunDir(tmp_path / bad).info_path.write_text(damage)
    for word in (good, "last", "20260101"):
        assert find_run(word, tmp_path).run_id == good
    for word in (good, "last", "last~0", "20260101"):
        assert discovery.find(word, tmp_path, [], None).run.run_id == good
    with pytest.raises(LabError, match=r"run\.json"):
        discovery.find(bad, tmp_path, [], None)
    assert main(["runs", "--runs-dir", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert good in out
    assert f"{bad}  " in out
    assert "damaged" in out
    assert f"run {bad} damaged: " in err
    assert f"{bad}/run.json" in err
    assert main(["show", bad, "--runs-dir", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("move the run's directory out of the run store")
    assert "RunInfo" not in line
    assert damage == "{" or "unknown key 'odd" in line
    assert "\x1b" not in line


def test_runs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    assert runs_dir(None) == Path("runs")
    monkeypatch.setenv("LAB_RUNS_DIR", "/elsewhere")
    assert runs_dir(None) == Path("/elsewhere")
    assert runs_dir("here") == Path("here")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a directory"):
        runs_dir(str(tmp_path / "file"))


def test_arguments_that_are_no_utf8_round_trip(tmp_path: Path) -> None:
    run = prepare(order(tmp_path, "\udcff"), tmp_path / "runs")
    assert run.read().spec.args[-1] == "\udcff"
    summary = summarize(run)
    assert Summary.from_json(replace(summary, reason="\udcff").to_json()).reason == "\udcff"
    write_summary(run, replace(summary, reason="\udcff"))
    assert run.summary_path.is_file()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "odd": 1}', '{"format": 99}', "\x00"]
)
def test_an_unreadable_run_json_is_one_clear_error(run: RunDir, text: str) -> None:
    run.info_path.write_text(text)
    with pytest.raises(LabError, match=r"run\.json"):
        run.read()
