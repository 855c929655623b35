"""A run that a user ends, or whose run store fails: stops, collection, and removal."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.backends import state as locking
from lab.backends.environment import NO_PARTS
from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.protocol.volume import Chunk, Request, RunSpec, Volume
from lab.protocol.volume.control import NoSuchRun
from lab.protocol.volume.states import State
from lab.runner import lifecycle
from lab.runner import runner as conducting
from lab.runner.fault_injection import NetworkFaults
from lab.runner.lifecycle import REFUSED_S, patiently
from lab.runner.runner import RunInterruptedError, execute_run
from lab.runner.store.directory import RunDir
from lab.runner.view import View
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.disks import fill, small_disk
from tests.support.fakes import (
    PLAN,
    FakeEnvironment,
    end_all,
    os_error,
    raising,
    record,
    train,
    write_records,
)
from tests.support.specs import place_in, prepared


def nothing() -> None:
    """The environment works."""


full = raising(os_error(errno.ENOSPC))
stuck = raising(LabError("it did not end", "look at it"))


@contextlib.contextmanager
def answers() -> Iterator[None]:
    """As an environment does, report a missing run."""
    try:
        yield
    except NoSuchRun as error:
        raise LabError(str(error)) from error


@dataclass
class Told(FakeEnvironment):
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    before_submission: Callable[[], object] = nothing
    after_submission: Callable[[], object] = nothing
    while_shipping: Callable[[], object] = nothing
    while_going_down: Callable[[], object] = nothing

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        self.before_submission()
        super().submit(request, parts)
        self.after_submission()

    def cancel(self, run_id: str, reason: str) -> None:
        self.asked.append(f"cancel: {reason}")
        with answers():
            super().cancel(run_id, reason)

    def kill(self, run_id: str, reason: str) -> None:
        self.asked.append(f"kill: {reason}")
        with answers():
            super().kill(run_id, reason)

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        with answers():
            for chunk in super().stream(run_id, offsets, follow=follow, **more):
                yield chunk
                self.while_shipping()

    def down(self, **more: Any) -> None:
        self.while_going_down()
        super().down(**more)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """The event that tasks without signal handling wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def environment(tmp_path: Path, released: threading.Event) -> Iterator[Told]:
    made = Told(tmp_path / "volume", lambda _volume, _request: None)
    yield made
    released.set()
    for thread in made.threads:
        thread.join()


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return prepared(tmp_path)


def go(
    run: RunDir,
    environment: Told,
    *,
    up: bool = False,
    detach: bool = False,
    show: Callable[[str], None] | None = None,
) -> None:
    """Conduct it in an environment that is booted for it, or was up before."""

    def said(line: str) -> None:
        if line != "booting":  # by its backend
            (show or environment.said.append)(line)

    with (
        shown_by(said),
        place_in(environment, is_up=up) as place,
    ):
        execute_run(run, place, None if detach else View)


def stands(run: RunDir) -> tuple[State, str]:
    info = run.read()
    return info.state, info.reason


def killed(volume: Volume, request: Request) -> None:
    """Tasks that end when they are killed."""
    wait_for(volume.kill(request.run_id).exists, "the request to end at once")
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 1, local_step=2)])
    end_all(volume, request, State.CANCELLED, reason="interrupted")


@pytest.mark.parametrize("up", [False, True])
def test_an_environment_that_was_up_is_blocked_from_the_host_before_the_run(
    run: RunDir, environment: Told, up: bool
) -> None:
    """A boot does it itself."""
    environment.tasks_do = train
    go(run, environment, up=up)
    assert environment.blocked_before == ([[]] if up else [])
    assert [each.run_id for each in environment.runs()] == [run.run_id]


@pytest.mark.parametrize("endless", [False, True])
def test_late_tasks_are_killed_and_endless_ones_abandoned(
    run: RunDir,
    environment: Told,
    monkeypatch: pytest.MonkeyPatch,
    released: threading.Event,
    endless: bool,
) -> None:
    monkeypatch.setattr(conducting, "STOP_S", 0.2)

    def tasks(volume: Volume, request: Request) -> None:
        os.kill(os.getpid(), signal.SIGHUP if endless else signal.SIGTERM)
        released.wait(PATIENCE_S) if endless else killed(volume, request)

    if endless:
        monkeypatch.setattr(conducting, "COLLECT_S", 0.1)
    environment.tasks_do = tasks
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert environment.asked == ["cancel: interrupted", "kill: interrupted"]
    assert ("the run was not fully collected" in environment.said) is endless
    assert stands(run) == (State.CANCELLED, "interrupted")
    assert run.complete() is not endless
    assert endless or run.records("worker-0").read_text().count("local_step") == 1
    assert (environment.is_down, environment.volume_stays) == (True, endless)


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("goes_down", ["well", "not", "late"])
def test_an_interrupt_before_the_submission_is_no_failure(
    run: RunDir,
    environment: Told,
    monkeypatch: pytest.MonkeyPatch,
    released: threading.Event,
    goes_down: str,
    detach: bool,
) -> None:
    monkeypatch.setattr(conducting, "DOWN_S", PATIENCE_S if goes_down == "well" else 0.1)
    environment.before_submission = raising(KeyboardInterrupt())
    hooks = {"not": stuck, "late": lambda: released.wait(PATIENCE_S)}
    environment.while_going_down = hooks.get(goes_down, nothing)
    with pytest.raises(KeyboardInterrupt):
        go(run, environment, detach=detach)
    assert not run.path.exists()
    assert f"run {run.run_id} did not start; its directory was removed" in environment.said
    assert environment.is_down is (goes_down == "well")
    leftovers = {"not": "it did not end; look at it", "late": "is not removed after 0.1 s"}
    last = environment.said[-1]
    assert leftovers.get(goes_down, "") in last
    assert last.endswith("; try again with `lab down mnist`") is (goes_down != "well")


@pytest.mark.parametrize(
    ("moment", "interrupt"),
    [
        ("before_submission", lambda: signal.raise_signal(signal.SIGINT)),
        ("after_submission", raising(KeyboardInterrupt())),
    ],
)
def test_an_interrupt_while_a_run_is_handed_over_ends_it(
    run: RunDir, environment: Told, moment: str, interrupt: Callable[[], object]
) -> None:
    def tasks(volume: Volume, request: Request) -> None:
        wait_for(volume.cancel(request.run_id).exists, "the request to end")
        end_all(volume, request, State.CANCELLED, reason="interrupted")

    environment.tasks_do = tasks
    setattr(environment, moment, interrupt)
    with pytest.raises(KeyboardInterrupt):
        go(run, environment, up=True, detach=True)
    assert environment.asked == ["cancel: interrupted"]
    assert stands(run) == (State.CANCELLED, "interrupted")
    assert run.complete()
    assert not environment.is_down


# ---- a run that another one continues, as after a requeue by Slurm


@dataclass
class Requeued(Told):
    """An environment that submits a second run, which continues the first one."""

    while_waiting: Callable[[], object] = nothing

    def continuation(self, run_id: str) -> Request | None:
        if run_id == "second":
            return None
        (first,) = self.runs()
        self.submit(replace(first, run_id="second", submitted_unix=0.0))
        self.while_waiting()
        return self.runs()[-1]


def test_a_run_that_continues_another_one_is_followed(run: RunDir, tmp_path: Path) -> None:
    environment = Requeued(tmp_path / "volume", train)
    run.write(replace(run.read(), git={"commit": "abc", "dirty": False}))
    go(run, environment)
    second = RunDir(run.path.parent / "second")
    assert run.complete()
    assert second.complete()
    assert second.read().git == run.read().git
    assert f"run second continues run {run.run_id}: {second.path}" in environment.said
    assert environment.is_down


def test_an_interrupt_prevents_that_a_run_is_continued(run: RunDir, tmp_path: Path) -> None:
    def tasks(volume: Volume, request: Request) -> None:
        if request.run_id == "second":
            wait_for(volume.cancel("second").exists, "the request to end")
            end_all(volume, request, State.CANCELLED, reason="interrupted")
        else:
            train(volume, request)

    environment = Requeued(tmp_path / "volume", tasks, while_waiting=raising(KeyboardInterrupt()))
    with pytest.raises(RunInterruptedError):
        go(run, environment)
    assert environment.asked == ["cancel: interrupted"]
    assert stands(run) == (State.SUCCEEDED, "")
    for thread in environment.threads:
        thread.join(PATIENCE_S)


# ---- a run store that is full, and runs that were not collected


KEPT = "the run volume of 'mnist' is kept: not all files of run {} were collected"


@pytest.mark.parametrize("moment", ["submission", "detached submission", "collection"])
def test_a_run_store_that_is_full_for_a_moment(
    tmp_path: Path, environment: Told, moment: str
) -> None:
    detach, notices = moment.startswith("detached"), []
    environment.tasks_do = train

    def free(line: str) -> None:
        notices.append(line)
        fillers.pop().unlink()

    with small_disk(tmp_path / "store") as store:
        run, fillers = prepared(tmp_path, runs_dir=store), []

        def fill_once() -> None:
            if not notices and not fillers:
                fillers.append(fill(store))

        if moment == "collection":
            environment.while_shipping = fill_once
        else:
            environment.after_submission = fill_once
        go(run, environment, up=True, detach=detach, show=free)
        (request,) = environment.runs()
        assert run.read().submitted_unix == request.submitted_unix
        assert (environment.asked, len(notices)) == ([], 1)
        assert "cannot be written: no space left on device; the run continues" in notices[0]
        assert stands(run) == (State.STARTING if detach else State.SUCCEEDED, "")
        for task in () if detach else ("worker-0", "worker-1"):
            records = environment.volume.records(run.run_id, task)
            assert run.records(task).read_bytes() == records.read_bytes() != b""


@pytest.mark.parametrize("error", [LabError, OSError, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_that_was_not_collected_is_never_removed(
    run: RunDir,
    environment: Told,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    damaged: bool,
) -> None:
    """Whatever the error is, and also if the run's program has damaged its request."""
    for module in ("collect", "lifecycle"):
        monkeypatch.setattr(f"lab.runner.{module}.REFUSED_S", 0.0)

    def fail() -> None:
        if damaged:
            environment.volume.request(run.run_id).write_text("{")
        if error is KeyboardInterrupt:
            environment.while_shipping = full  # it does not hide the interrupt
        raise error("it fails")

    environment.tasks_do = train
    environment.while_shipping = fail
    if error is not LabError:  # which cannot hide another error
        monkeypatch.setattr(lifecycle, "has_ended", lambda *_: full())
    with pytest.raises((error, LabError) if error is not KeyboardInterrupt else error):
        go(run, environment)
    assert not run.complete()
    assert (environment.is_down, environment.volume_stays) == (True, True)
    assert any(line.startswith(KEPT.format(run.run_id)) for line in environment.said)


@pytest.mark.parametrize("answers", [True, False])
def test_a_full_disk_before_the_submission_leaves_nothing(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    if not answers:
        monkeypatch.setattr(environment, "runs", raising(LabError("no engine answers")))
    environment.before_submission = full
    with pytest.raises(OSError, match="No space left"):
        go(run, environment)
    assert run.path.exists() is not answers
    assert environment.is_down is answers


def other_run(environment: Told, submitted_unix: float, tasks: Callable[..., None]) -> None:
    environment.tasks_do = tasks
    spec = RunSpec("async", "mnist_async.py")
    cluster = PLAN.cluster_spec()
    environment.submit(Request("other", spec, cluster, submitted_unix=submitted_unix))
    environment.threads[-1].join()


UNDER_WAY = "environment 'mnist' stays up: run other is under way in it"


@pytest.mark.parametrize(
    ("submitted_unix", "tasks", "is_down", "said"),
    [
        (1.0, lambda *_: None, False, UNDER_WAY),
        (4e9, lambda *_: None, False, UNDER_WAY),
        (4e9, train, True, KEPT.format("other")),  # its client has not collected it
    ],
    ids=["older", "newer", "ended"],
)
def test_an_environment_or_its_volume_stays_for_the_run_of_another_client(
    run: RunDir,
    environment: Told,
    submitted_unix: float,
    tasks: Callable[..., None],
    is_down: bool,
    said: str,
) -> None:
    environment.tasks_do = train
    environment.while_going_down = lambda: other_run(environment, submitted_unix, tasks)
    go(run, environment)
    assert run.complete()
    assert (environment.is_down, environment.volume_stays) == (is_down, is_down)
    assert [line[: len(said)] for line in environment.said] == [said]


@pytest.mark.parametrize("in_time", [True, False])
def test_an_environment_that_another_command_uses_stays_up_after_a_wait(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, in_time: bool
) -> None:
    refusals = iter(2 * [locking.Busy("another command uses it", "wait")])

    def refuse() -> None:
        for error in refusals:
            raise error

    monkeypatch.setattr(locking, "BUSY_S", 5.0 if in_time else 0.0)
    environment.tasks_do = train
    environment.while_going_down = refuse
    go(run, environment)
    assert stands(run) == (State.SUCCEEDED, "")
    assert environment.is_down is in_time
    line = "environment 'mnist' stays up: another command uses it; try again with `lab down mnist`"
    assert environment.said == ([] if in_time else [line])


def test_the_faults_of_a_run_end_with_it(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []
    end_faults = lambda _self: ended.append(run.read().collected)  # noqa: E731
    monkeypatch.setattr(NetworkFaults, "end", end_faults)
    environment.tasks_do = train
    go(run, environment)
    assert ended == [True]


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize(
    ("fault", "what"), [(stuck, "it did not end"), (full, "[Errno 28] No space left on device")]
)
def test_a_run_continues_on_unknown_hardware(
    run: RunDir,
    environment: Told,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[], None],
    what: str,
    detach: bool,
) -> None:
    monkeypatch.setattr(FakeEnvironment, "boot_file", lambda _self: fault())
    environment.tasks_do = train
    go(run, environment, detach=detach)
    assert stands(run) == (State.STARTING if detach else State.SUCCEEDED, "")
    assert environment.asked == []  # no command has ended it
    assert environment.is_down is not detach
    assert f"{what}; run.json does not describe the environment" in environment.said


# ---- the patience with a run store that refuses writes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that only sleeping advances."""
    made = SimpleNamespace(now=1000.0)
    made.monotonic = lambda: made.now
    made.sleep = lambda seconds: setattr(made, "now", made.now + seconds)
    monkeypatch.setattr(lifecycle, "time", made)
    monkeypatch.setattr("lab.protocol.volume.files.time", made)
    return made


@pytest.mark.parametrize(
    ("number", "seconds"),
    [
        *[(each, REFUSED_S) for each in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)],
        (errno.EACCES, 0),
    ],
)
def test_a_disk_that_stays_full_is_an_error_and_any_other_error_is_one_at_once(
    clock: SimpleNamespace, number: int, seconds: float, notices: list[str]
) -> None:
    waits: list[float] = []
    error = os_error(number)
    with pytest.raises(OSError, match=os.strerror(number)):
        patiently(raising(error), lambda: waits.append(clock.now))
    assert clock.now - 1000 == len(waits) == seconds
    assert len(notices) == bool(seconds)


@pytest.mark.parametrize("written", [False, True], ids=["for an hour", "for ten seconds"])
def test_each_refusal_has_the_whole_time(
    clock: SimpleNamespace, written: bool, notices: list[str]
) -> None:
    """The disk accepts writes for an hour once, or for a moment before each refusal."""
    tries: list[float] = []

    def action() -> str:
        tries.append(clock.now)
        if len(tries) == 20:
            return "done"
        clock.sleep(10 if written else 3600 * (len(tries) == 3))
        return str(full())

    size = (lambda: len(tries)) if written else (lambda: 0)
    assert patiently(action, size=size) == "done"
    assert len(notices) == (19 if written else 2)
