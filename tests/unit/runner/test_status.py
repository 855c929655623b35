"""The status of a run whose client was killed, as read-only commands report it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lab.backends.base import Backend
from lab.backends.environment import TaskInfo
from lab.base.errors import LabError
from lab.protocol.volume import Request, TaskStatus, Volume
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.states import State
from lab.runner.status import NEVER_BEGAN, StatusProber, finalize, status_of
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.verdict import GONE
from tests.support.cli import Cli, replace_backends
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, end, fail, raising, train
from tests.support.specs import held, run_info, update

LONG_AGO = 1000.0
FOLLOW = "no client follows it: `lab attach r1`"
COLLECT = "not collected: `lab attach r1`"
ENDED_ALIKE = "ps-0 and 2 others failed: exit code 3"


@dataclass
class Shown(FakeEnvironment):
    """An environment whose agents may all have ended."""

    alive: bool = True

    def tasks(self) -> list[TaskInfo]:
        return [replace(task, alive=self.alive) for task in super().tasks()]


def trains(volume: Volume, request: Request) -> None:
    for task in request.tasks():
        status = TaskStatus(task, State.TRAINING)
        write_atomically(volume.status(request.run_id, task), status.to_json())


@pytest.fixture
def environment(tmp_path: Path) -> Shown:
    return Shown(tmp_path / "volume", trains)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "runs/r1")


def info(state: State = State.STARTING, run_id: str = "r1", **more: object) -> RunInfo:
    begun = {"started_unix": LONG_AGO, "submitted_unix": LONG_AGO, "backend": "local"}
    facts = {**begun, "project": "mnist", "cluster": PLAN.cluster_spec(), **more}
    return run_info(run_id, state=state, **facts)


NEW = info(State.PENDING, submitted_unix=None, backend="")


def volumes(*known: Backend, patience_s: float = 10.0) -> StatusProber:
    return StatusProber(lambda: known, patience_s)


def of(run: RunDir, environment: FakeEnvironment | None) -> tuple[State, str, str]:
    found = status_of(run, volumes(FakeBackend("local", environment)))
    return found.state, found.reason, found.note


def nobody() -> Sequence[Backend]:
    pytest.fail("a backend was asked")


@pytest.mark.parametrize(
    "settled",
    [
        info(State.SUCCEEDED, collected=True),
        info(State.FAILED, submitted_unix=None),
        info(State.CANCELLED, collected=True),
    ],
)
def test_a_collected_run_needs_no_query(run: RunDir, settled: RunInfo) -> None:
    run.create(settled)
    assert status_of(run, StatusProber(nobody)).state is settled.state


def test_a_followed_run_needs_no_query_and_has_one_follower(run: RunDir) -> None:
    run.create(info(State.TRAINING))
    with held(run):
        assert run.is_followed()
        assert status_of(run, StatusProber(nobody)).state is State.TRAINING
        with pytest.raises(LabError, match="another process collects"):
            finalize(run, StatusProber(nobody))
    assert not run.is_followed()


def test_reading_does_not_block_a_collector(run: RunDir) -> None:
    run.create(info())
    seen, leave = threading.Event(), threading.Event()

    def look_again_and_again() -> None:
        while not leave.is_set():
            run.is_followed()
            seen.set()

    thread = threading.Thread(target=look_again_and_again)
    thread.start()
    try:
        assert seen.wait(60)
        for _ in range(200):
            with run.locked():
                pass
    finally:
        leave.set()
        thread.join()


@pytest.mark.parametrize(
    ("recorded", "tasks", "alive", "expected"),
    [
        (info(), trains, True, (State.TRAINING, "", FOLLOW)),
        (info(State.FAILED, reason="no engine"), trains, True, (State.TRAINING, "", FOLLOW)),
        (info(State.TRAINING), train, True, (State.SUCCEEDED, "", COLLECT)),
        (info(State.TRAINING), fail, True, (State.FAILED, ENDED_ALIKE, COLLECT)),
        (info(State.TRAINING), trains, False, (State.LOST, GONE, COLLECT)),
    ],
    ids=["killed client", "abandoned", "succeeded since", "failed since", "without agents"],
)
def test_the_volume_has_the_status(
    run: RunDir,
    environment: Shown,
    recorded: RunInfo,
    tasks: Callable[[Volume, Request], None],
    alive: bool,
    expected: tuple[State, str, str],
) -> None:
    run.create(recorded)
    environment.tasks_do = tasks
    environment.train()
    environment.alive = alive
    assert of(run, environment) == expected


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(("begun", "reason"), [(info(State.TRAINING), GONE), (NEW, NEVER_BEGAN)])
def test_a_run_on_no_volume_is_lost(
    run: RunDir, environment: Shown, begun: RunInfo, reason: str, up: bool
) -> None:
    run.create(begun)
    assert of(run, environment if up else None) == (State.LOST, reason, "")


def test_a_new_run_is_not_lost_and_an_end_is_kept(run: RunDir) -> None:
    run.create(replace(NEW, started_unix=time.time()))
    assert of(run, None) == (State.PENDING, "", "")
    run.write(info(State.CANCELLED, reason="interrupted"))
    assert of(run, None) == (State.CANCELLED, "interrupted", "")


class Deaf(FakeBackend):
    """A backend whose engine refuses to answer, or is slow."""

    asked = 0
    may_answer: threading.Event | None = None

    def find_any(self, project: str) -> FakeEnvironment | None:
        self.asked += 1
        if self.may_answer is not None:
            assert self.may_answer.wait(60)
        raise LabError("the Docker engine does not answer", "restart it")


def test_only_the_runs_backend_is_queried_once(run: RunDir) -> None:
    run.create(info(backend="compose"))
    deaf = Deaf("compose")
    ask = volumes(FakeBackend("local"), deaf)
    for project, asked in (("mnist", 1), ("mnist", 1), ("other", 2)):
        update(run, project=project)  # the fault may have been the first one's alone
        with pytest.raises(LabError, match="does not answer"):
            status_of(run, ask)
        assert deaf.asked == asked
    update(run, backend="local")
    assert status_of(run, ask).state is State.LOST


def test_a_backend_that_cannot_be_used_had_no_run_of_an_unknown_one(run: RunDir) -> None:
    run.create(NEW)
    ask = volumes(Deaf("compose", fault="the command `docker` is missing"), FakeBackend("local"))
    assert status_of(run, ask).reason == NEVER_BEGAN


def test_a_slow_engine_is_not_awaited(run: RunDir) -> None:
    run.create(info())
    slow = Deaf("local")
    slow.may_answer = threading.Event()
    ask = volumes(slow, patience_s=0.01)
    for project in ("mnist", "other"):
        update(run, project=project)
        with pytest.raises(LabError, match=r"does not answer within 0.01 s; check it with `lab do"):
            status_of(run, ask)
    assert slow.asked == 1
    slow.may_answer.set()


def test_only_a_final_loss_is_stored(run: RunDir, environment: Shown) -> None:
    run.create(info(State.TRAINING))
    environment.train()
    for alive in (True, False):  # its files still must be collected
        environment.alive = alive
        finalize(run, volumes(FakeBackend("local", environment)))
        assert run.read().state is State.TRAINING
    finalize(run, volumes(FakeBackend("local")))
    assert (run.read().state, run.read().reason) == (State.LOST, GONE)
    assert json.loads(run.summary_path.read_text())["state"] == "lost"
    finalize(run, StatusProber(nobody))


@pytest.fixture
def backend(
    environment: Shown, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeBackend:
    made = FakeBackend("local", environment)
    replace_backends(monkeypatch, made)
    monkeypatch.chdir(tmp_path)
    run.create(info())
    return made


def test_runs_and_show_report_the_real_state(
    backend: FakeBackend, environment: Shown, cli: Cli
) -> None:
    environment.train()
    out, err = cli("runs")
    assert "training" in out
    assert err == f"run r1 training: {FOLLOW}\n"
    (row,) = json.loads(cli("runs", "--json").out)
    assert (row["state"], row["note"]) == ("training", FOLLOW)
    out, err = cli("show", "r1", "--json")
    told = json.loads(out)
    assert (told["state"], {task["state"] for task in told["tasks"]}) == ("training", {"training"})
    assert err == f"run r1: {FOLLOW}\n"
    assert not (Path("runs/r1") / "status").exists()  # a read-only command writes nothing


@pytest.mark.parametrize("command", [["runs"], ["show", "r1"]])
def test_an_engine_that_does_not_answer_is_one_line(
    backend: FakeBackend,
    monkeypatch: pytest.MonkeyPatch,
    cli: Cli,
    command: list[str],
) -> None:
    replace_backends(monkeypatch, Deaf("local"))
    out, err = cli(*command)
    assert "starting" in out
    assert err == "run r1: its status is unknown: the Docker engine does not answer; restart it\n"


def test_an_environment_without_agents_has_lost_tasks_and_nothing_to_cancel(
    backend: FakeBackend, environment: Shown, cli: Cli
) -> None:
    environment.train()
    end(environment.volume, "r1", "worker-1", State.SUCCEEDED)
    environment.alive = False
    rows = json.loads(cli("ps", "mnist", "--json").out)
    lost = ("lost", GONE, "node lost")
    found = [(row["state"], row["reason"], row["cause"]) for row in rows]
    assert found == [lost, lost, ("succeeded", "", None)]
    assert "run r1 has no task to cancel" in cli("cancel", "r1", code=2).err
    assert not environment.volume.cancel("r1").exists()


def test_attach_stores_a_loss(backend: FakeBackend, run: RunDir, cli: Cli) -> None:
    backend.environment = None
    assert "run r1 lost (its environment no longer runs)" in cli("attach", "r1", code=1).err
    assert run.read().state is State.LOST


def test_runs_collects_what_a_dead_client_left(
    backend: FakeBackend, run: RunDir, environment: Shown, cli: Cli
) -> None:
    environment.tasks_do = train
    environment.train()
    under_way = RunDir(run.path.parent / "r2")
    under_way.create(info(State.TRAINING, "r2", project="other"))
    other = Shown(environment.root / "other", trains, project="other")
    other.submit(Request("r2", under_way.read().spec, PLAN.cluster_spec()))
    other.threads.pop().join()
    backend.others = (other,)
    out, err = cli("runs")
    assert err.splitlines()[0].startswith("run r1: succeeded, collected into ")
    assert (out.count("succeeded"), out.count("training")) == (1, 1)
    assert run.complete()
    assert not (under_way.path / "status").exists()
    assert "collected into" not in cli("runs").err


def test_a_run_that_cannot_be_collected_hides_no_other(
    backend: FakeBackend, run: RunDir, environment: Shown, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.tasks_do = train
    environment.train()
    monkeypatch.setattr("lab.runner.run_list.collect_one", raising(LabError("the engine refuses")))
    out, err = cli("runs")
    assert "succeeded" in out
    assert "run r1 is not collected: the engine refuses" in err
    assert not run.complete()


def test_a_run_of_an_environment_that_has_stopped_is_found(
    backend: FakeBackend, run: RunDir, environment: Shown, cli: Cli
) -> None:
    environment.tasks_do = train
    environment.train()
    environment.alive, environment.is_left = False, True
    cli("attach", "r1")
    assert run.complete()
