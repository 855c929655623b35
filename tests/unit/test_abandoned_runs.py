"""A run that its client abandoned, and its later collection."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from lab.backends import Chunk, TaskInfo
from lab.errors import LabError
from lab.run.collect import View
from lab.run.prepare import Submission, prepare
from lab.run.recovery import collect_one, collect_runs
from lab.run.runner import execute_run
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec, Volume
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.states import State
from tests.support.agents import PATIENCE_S
from tests.support.fakes import PLAN, FakeEnvironment, end, record, write_records


class Kept(View):
    """Keeps the messages for the user."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[object] = []

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        self.steps += [each["local_step"] for each in records]

    def forget(self, task: str) -> None:
        self.steps.clear()

    def notice(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class Breaking(FakeEnvironment):
    """An environment whose first streams break after worker-0's first record.

    Each breaks before the first chunk with this prefix.
    """

    breaks: int = 1
    before: str = "status/"
    fault: Callable[[], BaseException] = lambda: LabError("it broke off", "see `lab ls`")
    alive: bool = True
    answers: bool = True
    view: Kept = field(default_factory=Kept)

    def tasks(self) -> list[TaskInfo]:
        if not self.answers:
            raise LabError("no Docker engine answers", "start it")
        return [replace(task, alive=self.alive) for task in super().tasks()]

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        for chunk in super().stream(run_id, offsets, follow=follow, **more):
            has_recorded = Volume(self.root).records(run_id, "worker-0").exists()
            if self.breaks and has_recorded and chunk and chunk.path.startswith(self.before):
                self.breaks -= 1
                raise self.fault()
            yield chunk


def until_released(volume: Volume, request: Request) -> None:
    """Tasks that train until the test has seen enough."""
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
    deadline = time.monotonic() + PATIENCE_S
    while not (volume.root / "released").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 1, local_step=2)])
    (volume.run(request.run_id) / "model").mkdir()
    (volume.run(request.run_id) / "model/weights").write_text("trained")
    for task in request.tasks():
        end(volume, request.run_id, task, State.SUCCEEDED, exit_code=0)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that do not end are not waited for, nor is a stream that broke off twice."""
    monkeypatch.setattr("lab.run.runner.COLLECT_S", 0.1)
    monkeypatch.setattr("lab.run.collect.REFUSED_S", 0.0)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Breaking]:
    (tmp_path / "volume").mkdir()
    made = Breaking(tmp_path / "volume", until_released)
    yield made
    release(made)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    order = Submission(
        RunSpec("async").completed(EXPERIMENTS["async"]),
        PLAN,
        tmp_path,
        tmp_path / "cluster.yaml",
    )
    return prepare(order, tmp_path / "runs")


def release(environment: FakeEnvironment) -> None:
    (environment.root / "released").touch()
    for thread in environment.threads:
        thread.join()


def follow(run: RunDir, environment: Breaking, *, booted: bool = False) -> None:
    @contextlib.contextmanager
    def view(_info: object) -> Iterator[Kept]:
        yield environment.view

    execute_run(
        run,
        boot=lambda _defer: environment,
        found=None if booted else environment,
        keep=False,
        view=view,
        notify=lambda _line: None,
    )


def collect(run: RunDir, environment: FakeEnvironment) -> list[str]:
    return collect_runs(environment, run.path.parent, lambda _line: None)


def steps(run: RunDir) -> list[int]:
    lines = run.records("worker-0").read_text().splitlines()
    return [json.loads(line)["local_step"] for line in lines]


def released(environment: Breaking, **changes: object) -> Breaking:
    """An environment whose tasks do not wait."""
    (environment.root / "released").touch()
    return replace(environment, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("booted", [False, True])
def test_a_stream_that_breaks_once_is_followed_on(
    run: RunDir, environment: Breaking, booted: bool
) -> None:
    environment = released(environment)
    follow(run, environment, booted=booted)
    assert run.read().state is State.SUCCEEDED
    assert steps(run) == [1, 2]
    assert (run.path / "model/weights").read_text() == "trained"
    assert run.complete()
    assert environment.view.lines == ["it broke off; trying again"]
    assert environment.view.steps == [1, 2]
    assert environment.is_down is booted


def test_a_stream_that_breaks_again_later_is_followed_on(
    run: RunDir, environment: Breaking
) -> None:
    def later() -> LabError:
        path = run.path / "files/more"
        path.parent.mkdir(exist_ok=True)
        path.write_text("more" * (3 - environment.breaks))  # another event between
        return LabError("it broke off")

    environment = released(environment, breaks=3, fault=later)
    follow(run, environment)
    assert run.read().state is State.SUCCEEDED
    assert environment.view.lines == ["it broke off; trying again"] * 3


def test_a_stream_that_breaks_for_a_while_is_followed_on(
    run: RunDir, environment: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.run.collect.REFUSED_S", PATIENCE_S)
    environment = released(environment, breaks=4)

    def silent_once() -> LabError:
        environment.answers = environment.breaks != 2  # nor does the engine, for a moment
        return LabError("it broke off")

    environment.fault = silent_once
    follow(run, environment, booted=True)
    assert run.complete()
    assert environment.view.lines == ["it broke off; trying again"]
    assert (environment.is_down, environment.volume_stays) == (True, False)


@pytest.mark.parametrize(
    ("fault", "state", "reason"),
    [
        (lambda: LabError("it broke off", "see `lab ls`"), "failed", "it broke off; see `lab ls`"),
        (KeyboardInterrupt, "cancelled", "interrupted"),
    ],
)
def test_an_abandoned_run_continues_and_is_collected(
    run: RunDir,
    environment: Breaking,
    fault: Callable[[], BaseException],
    state: str,
    reason: str,
) -> None:
    environment.breaks, environment.fault = 2, fault
    with pytest.raises((LabError, KeyboardInterrupt)):
        follow(run, environment)
    assert (run.read().state, run.read().reason) == (State(state), reason)
    assert not run.complete()
    assert collect(run, environment) == [run.run_id]  # under way: `lab down` will ask
    assert not run.read().state.ended
    release(environment)
    assert collect(run, environment) == []
    info = run.read()
    assert (info.state, info.reason, info.stopped_unix) == (State.SUCCEEDED, "", 112.5)
    assert json.loads(run.summary_path.read_text())["state"] == "succeeded"
    assert steps(run) == [1, 2]
    assert run.complete()


def test_a_silent_engine_changes_no_task(run: RunDir, environment: Breaking) -> None:
    environment.fault = lambda: setattr(environment, "answers", False) or LabError("it broke off")
    environment.breaks = 2
    with pytest.raises(LabError, match="it broke off"):
        follow(run, environment)
    assert run.read().state is State.FAILED
    environment.answers = True
    release(environment)
    assert collect(run, environment) == []
    assert run.read().state is State.SUCCEEDED


@pytest.mark.parametrize("breaks", [1, 2])
def test_a_run_of_a_removed_environment_is_lost(
    run: RunDir, environment: Breaking, breaks: int
) -> None:
    environment.breaks = breaks
    environment.fault = lambda: setattr(environment, "alive", False) or LabError("it has gone")
    with pytest.raises(LabError, match="it has gone"):
        follow(run, environment)
    assert (run.read().state, run.read().reason) == (State.LOST, "it has gone")
    assert run.complete() is (breaks == 1)
    assert json.loads(run.summary_path.read_text())["tasks"][1]["local_step"] == 1
    assert environment.view.lines == ["it has gone; collecting the rest"]
    assert collect(run, environment) == []
    assert (run.read().state, run.read().reason) == (State.LOST, "it has gone")
    release(environment)
    assert collect(run, environment) == []
    assert (run.read().state, run.read().reason) == (State.SUCCEEDED, "")


def test_a_run_of_an_environment_in_removal_is_lost(run: RunDir, environment: Breaking) -> None:
    def breaks_off() -> LabError:
        environment.alive = environment.breaks > 0
        return LabError("its container was stopped")

    environment.breaks, environment.fault = 2, breaks_off
    with pytest.raises(LabError, match="was stopped"):
        follow(run, environment)
    assert (run.read().state, run.read().reason) == (State.LOST, "its container was stopped")
    assert run.complete()


def test_everything_of_a_lost_run_is_collected_before_its_environment_is_removed(
    run: RunDir, environment: Breaking
) -> None:
    def ends() -> LabError:
        environment.alive = False
        written = Volume(environment.root).run(run.run_id) / "files/weights"
        written.write_text("half trained")
        return LabError("its supervisor ended", "its runs are in /state/local/mnist/runs")

    environment.fault = ends
    with pytest.raises(LabError) as caught:
        follow(run, environment, booted=True)
    assert str(caught.value) == f"its supervisor ended; the collected files are in {run.path}"
    assert (run.path / "files/weights").read_text() == "half trained"
    assert (run.read().reason, run.read().collected) == ("its supervisor ended", True)
    assert environment.is_down
    assert not environment.volume_stays


def test_a_collection_among_agents_that_are_still_starting_is_revised(
    run: RunDir, environment: Breaking
) -> None:
    environment.breaks, environment.alive = 0, False
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    assert collect(run, environment) == []
    first = RunDir(run.path.parent / "r1")
    assert (first.read().state, first.read().reason) == (
        State.LOST,
        "its environment no longer runs",
    )
    environment.alive = True
    assert collect(run, environment) == ["r1"]
    assert not first.read().collected
    release(environment)
    assert collect(run, environment) == []
    assert (first.read().state, first.read().reason) == (State.SUCCEEDED, "")


def test_a_run_without_its_model_is_not_complete(run: RunDir, environment: Breaking) -> None:
    environment = released(environment, breaks=2, before="model/")
    with pytest.raises(LabError, match="it broke off"):
        follow(run, environment)
    assert run.read().state is State.SUCCEEDED
    assert not run.complete()
    assert collect(run, environment) == []
    assert (run.path / "model/weights").read_text() == "trained"
    assert run.complete()


def test_attach_follows_a_stream_that_breaks_once(run: RunDir, environment: Breaking) -> None:
    environment = released(environment)
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))

    @contextlib.contextmanager
    def view(_info: object) -> Iterator[Kept]:
        yield environment.view

    (request,) = environment.runs()
    store = run.path.parent
    summary = collect_one(request, environment, store, lambda _: None, follow=True, view=view)
    assert summary.state == State.SUCCEEDED
    assert environment.view.lines == ["it broke off; trying again"]
    assert RunDir(store / "r1").complete()
