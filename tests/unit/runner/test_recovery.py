"""A run that its client abandoned, and its later collection."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from lab.backends.environment import TaskInfo
from lab.base.errors import LabError
from lab.protocol.volume import Chunk, Request, Volume
from lab.protocol.volume.states import State
from lab.runner.recovery import collect_one, collect_runs
from lab.runner.runner import execute_run
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.view import View
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.fakes import REQUEST, FakeEnvironment, end_all, record, write_records
from tests.support.specs import place_in, prepared, update


class Kept(View):
    def __init__(self) -> None:
        super().__init__(RunInfo(REQUEST.run_id, REQUEST.spec, cluster=REQUEST.cluster))
        self.steps: list[object] = []

    def records(self, task: str, records: Sequence[Mapping[str, object]]) -> None:
        super().records(task, records)
        self.steps += [each["local_step"] for each in records]

    def forget(self, task: str) -> None:
        super().forget(task)
        self.steps.clear()


@dataclass
class Breaking(FakeEnvironment):
    """An environment whose first streams break after worker-0's first record.

    Each breaks before the first chunk with this prefix.
    """

    breaks: int = 1
    before: str = "status/"
    fault: Callable[[], BaseException] = lambda: LabError("it broke off", "see `lab ps`")
    alive: bool = True
    answers: bool = True
    is_volume_only: bool = False
    view: Kept = field(default_factory=Kept)

    @contextlib.contextmanager
    def shown(self, _info: object) -> Iterator[View]:
        yield self.view

    def tasks(self) -> list[TaskInfo]:
        if not self.answers:
            raise LabError("no Docker engine answers")
        tasks = [] if self.is_volume_only else super().tasks()
        return [replace(task, alive=self.alive) for task in tasks]

    def cluster_spec(self) -> dict[str, list[str]]:
        return {} if self.is_volume_only else super().cluster_spec()

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        if follow and self.is_volume_only:
            raise LabError("no task runs in which to follow the run")
        for chunk in super().stream(run_id, offsets, follow=follow, **more):
            has_recorded = Volume(self.root).records(run_id, "worker-0").exists()
            if self.breaks and has_recorded and chunk and chunk.path.startswith(self.before):
                self.breaks -= 1
                raise self.fault()
            yield chunk


def until_released(volume: Volume, request: Request) -> None:
    """Tasks that train until the test has seen enough."""
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
    wait_for((volume.root / "released").exists, "the release")
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 1, local_step=2)])
    (volume.run(request.run_id) / "model").mkdir()
    (volume.run(request.run_id) / "model/weights").write_text("trained")
    end_all(volume, request, State.SUCCEEDED, exit_code=0)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks that do not end are not waited for, nor is a stream that broke off twice."""
    monkeypatch.setattr("lab.runner.runner.COLLECT_S", 0.1)
    monkeypatch.setattr("lab.runner.collect.REFUSED_S", 0.001)


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Breaking]:
    made = Breaking(tmp_path / "volume", until_released)
    yield made
    release(made)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return prepared(tmp_path)


def release(environment: FakeEnvironment) -> None:
    (environment.root / "released").touch()
    for thread in environment.threads:
        thread.join()


def follow(run: RunDir, environment: Breaking, *, booted: bool = False) -> None:
    with place_in(environment, is_up=not booted) as place:
        execute_run(run, place, environment.shown)


def collect(run: RunDir, environment: FakeEnvironment) -> list[str]:
    """Collect all runs; return those that are under way."""
    requests, store = environment.runs(), run.path.parent
    collect_runs(environment, requests, store)
    ids = [request.run_id for request in requests]
    return [run_id for run_id in ids if not RunDir(store / run_id).read().state.ended]


def steps(run: RunDir) -> list[int]:
    lines = run.records("worker-0").read_text().splitlines()
    return [json.loads(line)["local_step"] for line in lines]


def end_of(run: RunDir) -> tuple[State, str]:
    return run.read().state, run.read().reason


def released(environment: Breaking, **changes: object) -> Breaking:
    (environment.root / "released").touch()
    return replace(environment, **changes)


@pytest.mark.parametrize("how", ["found", "booted", "attached"])
def test_a_stream_that_breaks_once_is_followed_on(
    run: RunDir, environment: Breaking, how: str, notices: list[str]
) -> None:
    environment = released(environment)
    if how == "attached":
        environment.submit(REQUEST)
        store = run.path.parent
        collect_one(REQUEST, environment, store, follow=True, view=environment.shown)
        run = RunDir(store / "r1")
    else:
        follow(run, environment, booted=how == "booted")
    assert run.read().state is State.SUCCEEDED
    assert steps(run) == environment.view.steps == [1, 2]
    assert (run.path / "model/weights").read_text() == "trained"
    assert run.complete()
    assert notices.count("it broke off; trying again") == 1
    assert environment.is_down is (how == "booted")


def test_a_stream_that_breaks_for_a_while_is_followed_on(
    run: RunDir, environment: Breaking, monkeypatch: pytest.MonkeyPatch, notices: list[str]
) -> None:
    monkeypatch.setattr("lab.runner.collect.REFUSED_S", PATIENCE_S)
    environment = released(environment, breaks=4)

    def silent_once() -> LabError:
        environment.answers = environment.breaks != 2  # nor does the engine, for a moment
        return LabError("it broke off")

    environment.fault = silent_once
    follow(run, environment, booted=True)
    assert run.complete()
    assert notices.count("it broke off; trying again") == 1
    assert (environment.is_down, environment.volume_stays) == (True, False)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("a break", (State.FAILED, "it broke off; see `lab ps`")),
        ("a silent engine", (State.FAILED, "it broke off; see `lab ps`")),
        ("Ctrl-C", (State.CANCELLED, "interrupted")),
    ],
)
def test_an_abandoned_run_continues_and_is_collected(
    run: RunDir, environment: Breaking, by: str, expected: tuple[State, str]
) -> None:
    def breaks_off() -> BaseException:
        environment.answers = by != "a silent engine"
        return KeyboardInterrupt() if by == "Ctrl-C" else LabError("it broke off", "see `lab ps`")

    # More than two: new data may arrive between two breaks, and the stream is then followed on.
    environment.breaks, environment.fault = 100, breaks_off
    with pytest.raises((LabError, KeyboardInterrupt)):
        follow(run, environment)
    assert end_of(run) == expected
    assert not run.complete()
    environment.answers, environment.breaks = True, 0
    assert collect(run, environment) == [run.run_id]  # under way: `lab down` will ask
    assert not run.read().state.ended
    release(environment)
    assert collect(run, environment) == []
    assert (*end_of(run), run.read().stopped_unix) == (State.SUCCEEDED, "", 112.5)
    assert json.loads(run.summary_path.read_text())["state"] == "succeeded"
    assert steps(run) == [1, 2]
    assert run.complete()


@pytest.mark.parametrize(
    ("breaks", "dies_at", "complete"),
    [(1, 0, True), (2, 1, False), (2, 0, True)],
    ids=["gone", "gone at once", "in removal"],
)
def test_a_run_of_a_removed_environment_is_lost(
    run: RunDir,
    environment: Breaking,
    breaks: int,
    dies_at: int,
    complete: bool,
    notices: list[str],
) -> None:
    def breaks_off() -> LabError:
        environment.alive = environment.breaks > dies_at
        return LabError("it has gone")

    environment.breaks, environment.fault = breaks, breaks_off
    with pytest.raises(LabError, match="it has gone"):
        follow(run, environment)
    assert end_of(run) == (State.LOST, "it has gone")
    assert run.complete() is complete
    assert json.loads(run.summary_path.read_text())["tasks"][1]["local_step"] == 1
    assert "it has gone; collecting the rest" in notices
    assert collect(run, environment) == []
    assert end_of(run) == (State.LOST, "it has gone")
    release(environment)
    assert collect(run, environment) == []
    assert end_of(run) == (State.SUCCEEDED, "")


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


def test_the_tasks_of_an_environment_that_stops_say_how_they_ended(
    run: RunDir, environment: Breaking
) -> None:
    def stops() -> LabError:
        reason = "the agent was stopped (SIGTERM)"
        end_all(environment.volume, environment.runs()[0], State.CANCELLED, reason=reason)
        environment.alive = False
        return LabError("the container stopped during the call")

    environment.fault = stops
    follow(run, environment, booted=True)
    assert end_of(run) == (State.CANCELLED, "the agent was stopped (SIGTERM)")
    assert environment.is_down


def test_a_collection_among_agents_that_are_still_starting_is_revised(
    run: RunDir, environment: Breaking
) -> None:
    environment.breaks = 0
    environment.submit(REQUEST)
    environment.alive = False
    assert collect(run, environment) == []
    first = RunDir(run.path.parent / "r1")
    assert end_of(first) == (State.LOST, "its environment no longer runs")
    environment.alive = True
    assert collect(run, environment) == ["r1"]
    assert not first.read().collected
    release(environment)
    assert collect(run, environment) == []
    assert end_of(first) == (State.SUCCEEDED, "")


def test_a_run_without_its_model_is_not_complete(run: RunDir, environment: Breaking) -> None:
    environment = released(environment, breaks=2, before="model/")
    with pytest.raises(LabError, match="it broke off"):
        follow(run, environment)
    assert run.read().state is State.SUCCEEDED
    assert not run.complete()
    assert collect(run, environment) == []
    assert (run.path / "model/weights").read_text() == "trained"
    assert run.complete()


@pytest.mark.parametrize("follow", [True, False], ids=["attach", "collect"])
@pytest.mark.parametrize("known", ["by its client", "by nobody"])
@pytest.mark.parametrize("ends", [State.LOST, State.CANCELLED])
def test_a_run_of_which_only_the_volume_is_left_keeps_its_tasks(
    run: RunDir, environment: Breaking, ends: State, known: str, follow: bool
) -> None:
    request = replace(REQUEST, run_id=run.run_id) if known == "by its client" else REQUEST
    update(run, tasks=tuple({"task": task, "gpus": ()} for task in request.tasks()))
    run = RunDir(run.path.parent / request.run_id)
    environment = released(environment, tasks_do=lambda *_: None, breaks=0)
    environment.submit(request)
    if ends is State.CANCELLED:
        end_all(environment.volume, request, ends)
    environment.is_volume_only = environment.is_left = True
    collect_one(request, environment, run.path.parent, follow=follow)
    assert run.read().state is ends
    assert run.read().task_names() == request.tasks()
    summary = json.loads(run.summary_path.read_text())
    assert (summary["state"], len(summary["tasks"])) == (ends, len(request.tasks()))
    assert len(run.read().tasks) == (len(request.tasks()) if known == "by its client" else 0)
