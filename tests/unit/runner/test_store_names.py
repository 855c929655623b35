"""The run in the run store: its directory, its states, and its leftovers after an abort."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lab.base.errors import InputError, LabError
from lab.protocol.experiments.experiment import hyperparameters, with_seed
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.states import State
from lab.runner import discovery
from lab.runner.recovery import collect_one, collect_runs
from lab.runner.runner import execute_run, place_of
from lab.runner.store.directory import RunDir, runs_path
from lab.runner.store.names import find_run
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summarize import summarize
from lab.runner.store.summary import Summary, write_summary
from lab.runner.view import View
from tests.support.cli import Cli
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, train
from tests.support.specs import place_in, prepared, prepared_run, run_info, update

ASYNC = EXPERIMENTS["async"]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return prepared(tmp_path, "--epochs=1")


@pytest.fixture
def environment(tmp_path: Path) -> FakeEnvironment:
    (tmp_path / "volume").mkdir()
    return FakeEnvironment(tmp_path / "volume")


def go(run: RunDir, environment: FakeEnvironment) -> Summary:
    with place_in(environment) as place:
        return execute_run(run, place, View)[1]


def test_run_json_precedes_every_start(run: RunDir) -> None:
    info = run.read()
    assert info.state is State.PENDING
    assert info.hyperparameters["epochs"] == 1  # as given
    assert info.hyperparameters["batch_size"] == 100  # the program's default
    assert info.seed == info.hyperparameters["seed"]
    assert f"--seed={info.seed}" in info.spec.args
    assert info.cluster == PLAN.cluster_spec()
    assert info.plan["tasks"][1]["port"] == 2222
    assert info.versions["python"]
    assert abs(info.started_unix - time.time()) < 60
    assert RunInfo.from_json(info.to_json()) == RunInfo.from_json(run.info_path.read_text())


def test_a_run_whose_files_cannot_be_copied_leaves_nothing(tmp_path: Path, run: RunDir) -> None:
    with pytest.raises(FileNotFoundError, match="checkpoints"):
        prepared(tmp_path, resumes=run)
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


def test_an_environment_is_booted_once_for_several_runs_and_removed_after_them(
    tmp_path: Path, run: RunDir, environment: FakeEnvironment
) -> None:
    backend = FakeBackend(made=environment)
    with place_of(prepared_run(tmp_path, backend=backend)) as place:
        for each in (run, prepared(tmp_path)):
            assert execute_run(each, place, View)[1].state == State.SUCCEEDED
            assert not environment.is_down
    assert backend.booted == 1
    assert environment.is_down


def test_a_run_is_not_collected_again_while_it_is_complete_elsewhere(
    tmp_path: Path, environment: FakeEnvironment, notices: list[str]
) -> None:
    environment.train()
    one, two = tmp_path / "one", tmp_path / "two"
    collect_runs(environment, environment.runs(), one)
    assert environment.collected() == {"r1": str(one)}
    collect_runs(environment, environment.runs(), two)
    assert notices[1:] == [f"run r1 is already collected, in {one / 'r1'}"]
    assert not two.exists()
    # `lab attach` names this very directory.
    collect_one(environment.runs()[0], environment, two)
    assert (two / "r1/summary.json").is_file()
    assert environment.collected() == {"r1": str(two)}


@pytest.mark.parametrize("lie", ["", "gone", "\0", "x" * 5000, "damaged", "another", "refused"])
def test_a_note_that_is_wrong_keeps_no_run_from_being_collected(
    tmp_path: Path, environment: FakeEnvironment, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.train()
    home = tmp_path / "runs"
    collect_runs(environment, environment.runs(), home)
    (tmp_path / "damaged/r1").mkdir(parents=True)
    for name in ("run.json", "summary.json"):
        (tmp_path / "damaged/r1" / name).write_text("{}")
    shutil.copytree(home / "r1", tmp_path / "another/r1")
    update(RunDir(tmp_path / "another/r1"), run_id="r2")
    shutil.rmtree(home)

    def refuse(*_: object) -> None:
        raise LabError("the run volume is full")

    if lie == "refused":
        monkeypatch.setattr(environment, "mark_collected", refuse)
    environment.volume.collected("r1").write_text(str(tmp_path / lie) if lie.isalpha() else lie)
    collect_runs(environment, environment.runs(), home)
    assert RunDir(home / "r1").complete()


def test_a_run_with_files_that_stay_is_not_noted_as_collected(
    tmp_path: Path, environment: FakeEnvironment
) -> None:
    def leave(volume: Volume, request: Request) -> None:
        (volume.run(request.run_id) / "report.html").write_text("x")
        train(volume, request)

    environment.tasks_do = leave
    environment.train()
    collect_runs(environment, environment.runs(), tmp_path / "runs")
    assert RunDir(tmp_path / "runs/r1").complete()
    assert environment.collected() == {}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three runs; one that was refused before its start; a directory that is no run."""
    names = ("20260101-async-aa", "20260101-async-ab", "20260102-sync-aa")
    for time_unix, name in enumerate(names, 1):
        info = run_info(name, started_unix=time_unix, submitted_unix=time_unix)
        RunDir(tmp_path / name).create(info)
    RunDir(tmp_path / "refused").create(run_info("refused", started_unix=9.0))
    RunDir(tmp_path / "empty/refused").create(run_info("refused"))
    (tmp_path / "notes").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("last", "20260102-sync-aa"),
        ("last~1", "20260101-async-ab"),
        ("last~2", "20260101-async-aa"),
        ("20260102", "20260102-sync-aa"),
        ("refused", "refused"),
    ],
)
def test_a_run_is_found_by_a_unique_beginning(store: Path, word: str, found: str) -> None:
    assert find_run(word, store).run_id == found
    assert find_run(str(store / found), store).run_id == found


@pytest.mark.parametrize(
    ("folder", "word", "error"),
    [
        ("", "last~3", r"last~3: .* has 3 runs"),
        ("", "20260101", "matches 2 runs"),
        ("", "x", "no run 'x'"),
        ("", "/20260101", "no run '/.*20260101'"),
        ("empty", "last", "no run in .*empty has started"),
        ("missing", "last", "no run in .*missing has started"),
    ],
)
def test_no_run_or_several_are_an_error(store: Path, folder: str, word: str, error: str) -> None:
    with pytest.raises(InputError, match=error):
        find_run(f"{store}{word}" if word.startswith("/") else word, store / folder)


_ODD = {"format": 2, "run_id": "b", "state": "failed", "odd\x1b": 1}


@pytest.mark.parametrize("damage", ["{", json.dumps(_ODD)])
def test_a_damaged_run_hides_no_other(tmp_path: Path, cli: Cli, damage: str) -> None:
    good, bad = "20260101-0900-async-aaaa", "20260102-0900-async-bbbb"
    for name in (good, bad):
        RunDir(tmp_path / name).create(run_info(name, submitted_unix=1.0))
    RunDir(tmp_path / bad).info_path.write_text(damage)
    for word in (good, "last", "last~0", "20260101"):
        assert find_run(word, tmp_path).run_id == good
        assert discovery.find(word, tmp_path, [], None).run.run_id == good
    with pytest.raises(LabError, match=r"run\.json"):
        discovery.find(bad, tmp_path, [], None)
    out, err = cli("runs", "--runs-dir", str(tmp_path))
    assert {good, bad, "damaged"} <= {*out.split()}
    assert f"run {bad} damaged: " in err
    assert f"{bad}/run.json" in err
    (line,) = cli("show", bad, "--runs-dir", str(tmp_path), code=1).err.splitlines()
    assert line.endswith("move the run's directory out of the run store")
    assert damage == "{" or "unknown key 'odd" in line
    assert "\x1b" not in line


def test_runs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    assert runs_path(None) == Path("runs")
    monkeypatch.setenv("LAB_RUNS_DIR", "/elsewhere")
    assert runs_path(None) == Path("/elsewhere")
    assert runs_path("here") == Path("here")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="not a directory"):
        runs_path(str(tmp_path / "file"))


def test_arguments_that_are_no_utf8_round_trip(tmp_path: Path) -> None:
    run = prepared(tmp_path, "\udcff")
    assert run.read().spec.args[-1] == "\udcff"
    summary = replace(summarize(run), reason="\udcff")
    assert Summary.from_json(summary.to_json()) == summary
    write_summary(run, summary)
    assert run.summary_path.is_file()


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 2}', '{"format": 2, "odd": 1}', '{"format": 99}', "\x00"]
)
def test_an_unreadable_run_json_is_one_clear_error(run: RunDir, text: str) -> None:
    run.info_path.write_text(text)
    with pytest.raises(LabError, match=r"run\.json"):
        run.read()
