"""The status of a run whose client was killed, as read-only commands report it."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from lab.backends import Backend, TaskInfo
from lab.cli import main
from lab.errors import LabError
from lab.run.run_info import RunInfo
from lab.run.status import GONE, NEVER_BEGAN, StatusProber, finalize, status_of
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume
from lab.task.protocol.files import write_atomically
from lab.task.protocol.states import State
from tests.support.agents import PATIENCE_S
from tests.support.fakes import PLAN, FakeBackend, FakeEnvironment, end, train
from tests.support.specs import update

LONG_AGO = 1000.0
TRAINS = (State.TRAINING, "", "no client follows it: `lab attach r1`")
COLLECT = "not collected: `lab collect r1`"


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


def fails(volume: Volume, request: Request) -> None:
    for task in request.tasks():
        end(volume, request.run_id, task, State.FAILED, exit_code=3)


@pytest.fixture
def environment(tmp_path: Path) -> Shown:
    (tmp_path / "volume").mkdir()
    return Shown(tmp_path / "volume", trains)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "runs/r1")


def info(state: State = State.STARTING, **more: object) -> RunInfo:
    return RunInfo(
        "r1",
        RunSpec("async"),
        state=state,
        project="mnist",
        cluster=PLAN.cluster_spec(),
        **{"started_unix": LONG_AGO, "submitted_unix": LONG_AGO, "backend": "local", **more},
    )


def submit(environment: FakeEnvironment) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads.pop().join()


def volumes(*known: Backend) -> StatusProber:
    return StatusProber(lambda: known)


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


def _hold(path: Path, held: Event, leave: Event) -> None:
    with RunDir(path).locked():
        held.set()
        leave.wait(PATIENCE_S)


def test_a_followed_run_needs_no_query(run: RunDir) -> None:
    run.create(info(State.TRAINING))
    context = multiprocessing.get_context("spawn")
    held, leave = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(run.path, held, leave))
    other.start()
    try:
        assert held.wait(PATIENCE_S)
        assert run.is_followed()
        assert status_of(run, StatusProber(nobody)).state is State.TRAINING
        with pytest.raises(LabError, match="another process collects"):
            finalize(run, StatusProber(nobody))
    finally:
        leave.set()
        other.join()
    assert not run.is_followed()


def test_reading_does_not_block_a_collector(run: RunDir) -> None:
    run.create(info())
    context = multiprocessing.get_context("spawn")
    seen, leave = context.Event(), context.Event()
    other = context.Process(target=_look_again_and_again, args=(run.path, seen, leave))
    other.start()
    try:
        assert seen.wait(PATIENCE_S)
        for _ in range(200):
            with run.locked():
                pass
    finally:
        leave.set()
        other.join()


def _look_again_and_again(path: Path, seen: Event, leave: Event) -> None:
    while not leave.is_set():
        RunDir(path).is_followed()
        seen.set()


def test_a_run_of_a_killed_client_still_trains(run: RunDir, environment: Shown) -> None:
    run.create(info())
    submit(environment)
    assert of(run, environment) == TRAINS


def test_an_abandoned_run_still_trains(run: RunDir, environment: Shown) -> None:
    run.create(info(State.FAILED, reason="no Docker engine answers"))
    submit(environment)
    assert of(run, environment) == TRAINS


@pytest.mark.parametrize(
    ("tasks", "state", "reason"),
    [(train, State.SUCCEEDED, ""), (fails, State.FAILED, "ps-0 and 2 others failed: exit code 3")],
)
def test_a_run_that_ended_since_must_be_collected(
    run: RunDir,
    environment: Shown,
    tasks: Callable[[Volume, Request], None],
    state: State,
    reason: str,
) -> None:
    run.create(info(State.TRAINING))
    environment.tasks_do = tasks
    submit(environment)
    assert of(run, environment) == (state, reason, COLLECT)


def test_a_run_without_agents_is_lost_and_must_be_collected(
    run: RunDir, environment: Shown
) -> None:
    run.create(info(State.TRAINING))
    submit(environment)
    environment.alive = False
    assert of(run, environment) == (State.LOST, GONE, COLLECT)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize(
    ("begun", "reason"),
    [
        (info(State.TRAINING), GONE),
        (info(State.PENDING, submitted_unix=None, backend=""), NEVER_BEGAN),
    ],
)
def test_a_run_on_no_volume_is_lost(
    run: RunDir, environment: Shown, begun: RunInfo, reason: str, up: bool
) -> None:
    run.create(begun)
    assert of(run, environment if up else None) == (State.LOST, reason, "")


def test_a_run_that_has_just_begun_is_not_lost(run: RunDir) -> None:
    run.create(info(State.PENDING, submitted_unix=None, started_unix=time.time()))
    assert of(run, None) == (State.PENDING, "", "")


def test_an_end_is_kept_without_its_environment(run: RunDir) -> None:
    run.create(info(State.CANCELLED, reason="interrupted"))
    assert of(run, None) == (State.CANCELLED, "interrupted", "")


class Deaf(FakeBackend):
    """An environment whose engine does not answer."""

    asked = 0

    def find_any(self, project: str) -> FakeEnvironment | None:
        self.asked += 1
        raise LabError("the Docker engine does not answer", "restart it")


class Slow(FakeBackend):
    """An environment whose engine is slow."""

    asked = 0

    def find_any(self, project: str) -> FakeEnvironment | None:
        self.asked += 1
        time.sleep(1)
        return None


def test_only_the_runs_backend_is_queried_once(run: RunDir) -> None:
    run.create(info(backend="compose"))
    deaf = Deaf("compose")
    ask = volumes(FakeBackend("local"), deaf)
    for _ in range(2):
        with pytest.raises(LabError, match="does not answer"):
            status_of(run, ask)
    assert deaf.asked == 1
    update(run, project="other")  # the fault may have been the first one's alone
    with pytest.raises(LabError, match="does not answer"):
        status_of(run, ask)
    assert deaf.asked == 2
    update(run, backend="local")
    assert status_of(run, ask).state is State.LOST


def test_a_backend_that_cannot_be_used_had_no_run_of_an_unknown_one(run: RunDir) -> None:
    run.create(info(backend="", submitted_unix=None))
    ask = volumes(Deaf("compose", fault="there is no docker command"), FakeBackend("local"))
    assert status_of(run, ask).reason == NEVER_BEGAN


def test_a_slow_engine_is_not_awaited(run: RunDir) -> None:
    run.create(info())
    slow = Slow("local")
    ask = StatusProber(lambda: [slow], patience_s=0.01)
    for project in ("mnist", "other"):
        update(run, project=project)
        with pytest.raises(
            LabError, match=r"backend local does not answer within 0.01 s; check it with `lab do"
        ):
            status_of(run, ask)
    assert slow.asked == 1


def test_only_a_final_loss_is_stored(run: RunDir, environment: Shown) -> None:
    run.create(info(State.TRAINING))
    submit(environment)
    here = volumes(FakeBackend("local", environment))
    finalize(run, here)
    assert run.read().state is State.TRAINING
    environment.alive = False
    finalize(run, here)
    assert run.read().state is State.TRAINING  # its files still must be collected
    finalize(run, volumes(FakeBackend("local")))
    assert (run.read().state, run.read().reason) == (State.LOST, GONE)
    assert json.loads(run.summary_path.read_text())["state"] == "lost"
    finalize(run, StatusProber(nobody))


# ---- The commands


@pytest.fixture
def backend(
    environment: Shown, run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeBackend]:
    """A backend with an environment that is up, seen from a directory without a config."""
    made = FakeBackend("local", environment)
    for name in ("cli.commands.runs", "cli.commands.show", "service.environments"):
        monkeypatch.setattr(f"lab.{name}.backends", lambda: [made])
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    run.create(info(State.STARTING))
    yield made


def shown(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    assert main(arguments) == code
    out, err = capfd.readouterr()
    return out, err


def test_runs_and_show_report_the_real_state(
    backend: FakeBackend, environment: Shown, capfd: pytest.CaptureFixture[str]
) -> None:
    submit(environment)
    out, err = shown(capfd, "runs")
    assert "training" in out
    assert err == "run r1 training: no client follows it: `lab attach r1`\n"
    (row,) = json.loads(shown(capfd, "runs", "--json")[0])
    assert (row["state"], row["note"]) == ("training", "no client follows it: `lab attach r1`")
    out, err = shown(capfd, "show", "r1", "--json")
    told = json.loads(out)
    assert (told["state"], {task["state"] for task in told["tasks"]}) == ("training", {"training"})
    assert err == "run r1: no client follows it: `lab attach r1`\n"
    assert not (Path("runs/r1") / "status").exists()  # a read-only command writes nothing


@pytest.mark.parametrize("command", [["runs"], ["show", "r1"]])
def test_an_engine_that_does_not_answer_is_one_line(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    command: list[str],
) -> None:  # fmt: skip
    module = importlib.import_module(f"lab.cli.commands.{command[0]}")
    monkeypatch.setattr(module, "backends", lambda: [Deaf("local")])
    out, err = shown(capfd, *command)
    assert "starting" in out
    assert err == ("run r1: its status is unknown: the Docker engine does not answer; restart it\n")


def test_ps_shows_lost_tasks_as_lost(
    backend: FakeBackend, environment: Shown, capfd: pytest.CaptureFixture[str]
) -> None:
    submit(environment)
    end(environment.volume, "r1", "worker-1", State.SUCCEEDED)
    environment.alive = False
    rows = json.loads(shown(capfd, "ps", "--json")[0])
    assert [(row["state"], row["reason"], row["cause"]) for row in rows] == [
        ("lost", GONE, "node lost"),
        ("lost", GONE, "node lost"),
        ("succeeded", "", None),
    ]


def test_attach_and_collect_store_a_loss(
    backend: FakeBackend, run: RunDir, capfd: pytest.CaptureFixture[str]
) -> None:
    backend.environment = None
    again = RunDir(run.path.parent / "r2")
    again.create(replace(info(State.TRAINING), run_id="r2"))
    assert "run r1 lost (its environment no longer runs)" in shown(capfd, "attach", "r1", code=1)[1]
    assert run.read().state is State.LOST
    shown(capfd, "collect")
    assert again.read().state is State.LOST
    update(run, state=State.TRAINING)
    shown(capfd, "collect", "r1", code=2)
    assert run.read().state is State.LOST


def test_collect_continues_after_an_unreadable_environment(
    backend: FakeBackend, run: RunDir, environment: Shown, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    broken = Shown(environment.root, project="broken")
    submit(environment)
    train(environment.volume, environment.runs()[0])
    update(run, collected=False)
    lost = RunDir(run.path.parent / "r2")
    lost.create(replace(info(State.TRAINING), run_id="r2", project="other"))
    RunDir(run.path.parent / "r0").create(
        replace(info(State.TRAINING), run_id="r0", project="broken")
    )
    monkeypatch.setattr(backend, "all", lambda: [broken, environment])
    monkeypatch.setattr(
        backend, "find_any", lambda project: broken if project == "broken" else None
    )

    def unreadable() -> list[Request]:
        raise LabError("the run volume cannot be read")

    monkeypatch.setattr(broken, "runs", unreadable)
    err = shown(capfd, "collect", code=1)[1]
    assert err.endswith("error: the run volume cannot be read\n")
    assert run.complete()
    assert lost.read().state is State.LOST


def test_a_run_of_another_project_that_has_stopped_is_found(
    backend: FakeBackend, run: RunDir, environment: Shown, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    submit(environment)
    train(environment.volume, environment.runs()[0])
    environment.alive = False
    monkeypatch.setattr(backend, "all", list)  # it is not up
    shown(capfd, "collect", "r1")
    assert run.complete()


def test_a_removed_environment_has_nothing_to_cancel(
    backend: FakeBackend, environment: Shown, capfd: pytest.CaptureFixture[str]
) -> None:
    submit(environment)
    environment.alive = False
    assert shown(capfd, "cancel", "r1", code=2)[1] == (
        "error: run r1 has no task to cancel: its environment no longer runs;"
        " collect its files with `lab collect r1`\n"
    )
    assert not environment.volume.cancel("r1").exists()
