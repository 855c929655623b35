"""A run that a user ends, or whose run store fails: stops, collection, and removal."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab import signals
from lab.backends import (
    NO_PARTS,
    Chunk,
    KeepVolume,
    Notify,
    Precondition,
    no_precondition,
    remove_volume,
)
from lab.backends import state as locking
from lab.cli import output
from lab.errors import LabError
from lab.run import lifecycle, patience
from lab.run import runner as conducting
from lab.run.collect import View
from lab.run.prepare import Submission, prepare
from lab.run.runner import execute_run
from lab.run.store import RunDir
from lab.run.summarize import sum_up, summarize
from lab.run.summary import Summary
from lab.task.protocol import Request, RunSpec, TaskStatus, Volume, control
from lab.task.protocol.control import NoSuchRun
from lab.task.protocol.experiments import EXPERIMENTS
from lab.task.protocol.states import State
from lab.task.protocol.statuses import write_status
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.disks import fill, small_disk
from tests.support.fakes import PLAN, FakeEnvironment, end, record, train, write_records
from tests.support.specs import update


@contextlib.contextmanager
def said_as_an_environment_does() -> Iterator[None]:
    try:
        yield
    except NoSuchRun as error:
        raise LabError(str(error)) from error


@dataclass
class Told(FakeEnvironment):
    """Keeps its calls, and fails where a test wants it."""

    asked: list[tuple[str, str]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    before_submission: Callable[[], None] = lambda: None
    after_submission: Callable[[], None] = lambda: None
    while_shipping: Callable[[], None] = lambda: None
    while_going_down: Callable[[], None] = lambda: None

    def submit(self, request: Request, parts: Mapping[str, Path] = NO_PARTS) -> None:
        self.before_submission()
        super().submit(request, parts)
        self.after_submission()

    def cancel(self, run_id: str, reason: str) -> None:
        self.asked.append(("cancel", reason))
        with said_as_an_environment_does():
            super().cancel(run_id, reason)

    def kill(self, run_id: str, reason: str) -> None:
        self.asked.append(("kill", reason))
        with said_as_an_environment_does():
            super().kill(run_id, reason)

    def stream(
        self, run_id: str, offsets: Mapping[str, int], *, follow: bool, **more: bool
    ) -> Iterator[Chunk | None]:
        with said_as_an_environment_does():
            for chunk in super().stream(run_id, offsets, follow=follow, **more):
                yield chunk
                self.while_shipping()

    def down(
        self,
        notify: Notify,
        *,
        unless: Precondition = no_precondition,
        keeps: KeepVolume = remove_volume,
    ) -> None:
        self.while_going_down()
        super().down(notify, unless=unless, keeps=keeps)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """The event that tasks without signal handling wait for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused write is an error at once."""
    monkeypatch.setattr(patience, "REFUSED_S", 0.0)


@pytest.fixture
def environment(tmp_path: Path, released: threading.Event) -> Iterator[Told]:
    (tmp_path / "volume").mkdir()
    made = Told(tmp_path / "volume", lambda _volume, _request: None)
    yield made
    released.set()
    for thread in made.threads:
        thread.join()


def prepared(folder: Path, store: Path) -> RunDir:
    spec = RunSpec("async").completed(EXPERIMENTS["async"])
    return prepare(Submission(spec, PLAN, folder, folder / "cluster.yaml"), store)


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return prepared(tmp_path, tmp_path / "runs")


def go(
    run: RunDir,
    environment: Told,
    *,
    up: bool = False,
    detach: bool = False,
    boot: Callable[[Callable[[], None]], Told] | None = None,
) -> None:
    """Conduct it in an environment that is booted for it, or was up before."""

    class Saying(View):
        def notice(self, line: str) -> None:
            environment.said.append(line)

    @contextlib.contextmanager
    def view(_info: object) -> Iterator[Saying]:
        yield Saying()

    execute_run(
        run,
        boot=boot or (lambda _defer: environment),
        found=environment if up else None,
        keep=False,
        detach=detach,
        view=view,
        notify=environment.said.append,
    )


def stands(run: RunDir) -> tuple[State, str]:
    info = run.read()
    return info.state, info.reason


def ends_when_killed(volume: Volume, request: Request) -> None:
    """Tasks that ignore the first Ctrl-C, and end only by `kill.json`."""
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)])
    os.kill(os.getpid(), signal.SIGINT)
    wait_for(volume.cancel(request.run_id).exists, "the request to end")
    os.kill(os.getpid(), signal.SIGINT)
    killed(volume, request)


def killed(volume: Volume, request: Request) -> None:
    """Tasks that end when they are killed."""
    wait_for(volume.kill(request.run_id).exists, "the request to end at once")
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 1, local_step=2)])
    for task in request.tasks():
        end(volume, request.run_id, task, State.CANCELLED, reason="interrupted")


@pytest.mark.parametrize("up", [False, True])
def test_an_environment_that_was_up_is_blocked_from_the_host_before_the_run(
    run: RunDir, environment: Told, up: bool
) -> None:
    """A boot does it itself."""
    environment.tasks_do = train
    go(run, environment, up=up)
    assert environment.blocked_before == ([[]] if up else [])
    assert [each.run_id for each in environment.runs()] == [run.run_id]


@pytest.mark.parametrize("up", [False, True])
def test_a_second_ctrl_c_kills_and_collects(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, up: bool
) -> None:
    monkeypatch.setattr(signals, "REPEAT_S", 0.0)
    environment.tasks_do = ends_when_killed
    with pytest.raises(KeyboardInterrupt):
        go(run, environment, up=up)
    assert environment.asked == [("cancel", "interrupted"), ("kill", "interrupted")]
    assert stands(run) == (State.CANCELLED, "interrupted")
    assert run.records("worker-0").read_text().count("local_step") == 2
    assert run.complete()
    assert environment.is_down is not up


def test_late_tasks_are_killed(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conducting, "STOP_S", 0.2)

    def tasks(volume: Volume, request: Request) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        killed(volume, request)

    environment.tasks_do = tasks
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert [what for what, _ in environment.asked] == ["cancel", "kill"]
    assert run.complete()
    assert environment.is_down


def test_endless_tasks_are_abandoned(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    monkeypatch.setattr(conducting, "STOP_S", 0.1)
    monkeypatch.setattr(conducting, "COLLECT_S", 0.1)

    def tasks(_volume: Volume, _request: Request) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        released.wait(PATIENCE_S)

    environment.tasks_do = tasks
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert "the run was not completely collected" in environment.said
    assert stands(run) == (State.CANCELLED, "interrupted")
    assert (environment.is_down, environment.volume_stays) == (True, True)


@pytest.mark.parametrize("detach", [False, True])
def test_an_interrupt_before_the_submission_is_no_failure(
    run: RunDir, environment: Told, detach: bool
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    environment.before_submission = interrupted
    with pytest.raises(KeyboardInterrupt):
        go(run, environment, detach=detach)
    assert not run.path.exists()
    assert f"run {run.run_id} did not start; its directory is removed" in environment.said
    assert environment.is_down


def test_an_interrupt_while_a_run_is_handed_over_ends_it(run: RunDir, environment: Told) -> None:
    def tasks(volume: Volume, request: Request) -> None:
        wait_for(volume.cancel(request.run_id).exists, "the request to end")
        for task in request.tasks():
            end(volume, request.run_id, task, State.CANCELLED, reason="interrupted")

    environment.tasks_do = tasks
    environment.before_submission = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        go(run, environment, up=True, detach=True)
    assert environment.asked == [("cancel", "interrupted")]
    assert stands(run) == (State.CANCELLED, "interrupted")
    assert run.complete()
    assert not environment.is_down


def test_an_interrupt_as_a_boot_ends_removes_it(run: RunDir, environment: Told) -> None:
    def boot(defer: Callable[[], None]) -> Told:
        defer()
        signal.raise_signal(signal.SIGINT)
        return environment

    with pytest.raises(KeyboardInterrupt):
        go(run, environment, boot=boot)
    assert environment.is_down


@pytest.mark.usefixtures("impatient")
def test_an_interrupt_while_a_failure_is_stored_waits(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark_ended = lifecycle.mark_ended

    def interrupted(run: RunDir, state: State, reason: str) -> None:
        signal.raise_signal(signal.SIGINT)
        mark_ended(run, state, reason)

    monkeypatch.setattr(lifecycle, "mark_ended", interrupted)
    for break_off, kind in ((stuck, LabError), (full, OSError)):
        environment.after_submission = break_off
        with pytest.raises(kind):
            go(run, environment)
        assert run.read().state is State.FAILED
        shutil.rmtree(environment.volume.root)
        environment.volume.root.mkdir()
        update(run, state=State.PENDING)


def test_a_run_begins_when_the_volume_has_it(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "unix_time", lambda: 5000.0)  # after a long upload
    with run.opened() as opened:
        lifecycle.submit(opened, environment)
        assert opened.info.submitted_unix == 5000.0  # as other clients record it
    assert [request.submitted_unix for request in environment.runs()] == [5000.0]


@pytest.mark.parametrize("ended", [False, True])
def test_a_broken_off_run_is_summarized_once(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    summaries: list[Summary] = []

    def count(*given: Any) -> Summary:
        summaries.append(sum_up(*given))
        return summaries[-1]

    monkeypatch.setattr(lifecycle, "sum_up", count)
    with run.opened() as opened:
        lifecycle.submit(opened, environment)
        for task in opened.info.task_names() if ended else ():
            run.status(task).parent.mkdir(exist_ok=True)
            write_status(run.status(task), TaskStatus(task, State.SUCCEEDED))
        lifecycle.abort(opened, State.FAILED, "the disk is full")
    state = State.SUCCEEDED if ended else State.FAILED
    assert [each.state for each in summaries] == [run.read().state] == [state]


def kept(run_id: str) -> str:
    """The notice that the run volume stays."""
    return (
        "the run volume of 'mnist' is kept: not all files of run"
        f" {run_id} were collected; `lab collect {run_id} --all-sizes` collects files of"
        " any size, `lab down mnist --discard` removes the volume"
    )


def full() -> None:
    """A disk without room."""
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_run_store_that_is_full_for_a_moment(tmp_path: Path, environment: Told) -> None:
    fillers = []
    environment.tasks_do = train

    def fill_once() -> None:
        environment.while_shipping = lambda: None
        fillers.append(fill(store))

    def free_some_space() -> None:
        wait_for(lambda: any("cannot be written" in line for line in environment.said), "a notice")
        fillers[0].unlink()

    with small_disk(tmp_path / "store") as store:
        run = prepared(tmp_path, store)
        environment.while_shipping = fill_once
        user = threading.Thread(target=free_some_space)
        user.start()
        go(run, environment)
        user.join()
        assert stands(run) == (State.SUCCEEDED, "")
        assert environment.asked == []
        assert (
            environment.said.count(
                "the run store cannot be written: no space left on device; the run continues"
            )
            == 1
        )
        for task in ("worker-0", "worker-1"):
            kept = environment.volume.records(run.run_id, task)
            assert run.records(task).read_bytes() == kept.read_bytes() != b""


@pytest.mark.parametrize("detach", [False, True])
def test_a_run_store_that_is_full_at_the_submission(
    tmp_path: Path, environment: Told, detach: bool
) -> None:
    fillers: list[Path] = []
    environment.tasks_do = train

    class Freeing(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            fillers.pop().unlink()

    environment.said = Freeing()
    with small_disk(tmp_path / "store") as store:
        run = prepared(tmp_path, store)
        environment.after_submission = lambda: fillers.append(fill(store))
        go(run, environment, up=True, detach=detach)
        (request,) = environment.runs()
        assert run.read().submitted_unix == request.submitted_unix
        assert environment.asked == []
        assert stands(run)[0] is (State.STARTING if detach else State.SUCCEEDED)
        assert len(environment.said) == 1


@pytest.mark.usefixtures("impatient")
def test_a_full_disk_leaves_uncollected_files_on_the_volume(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.tasks_do = train
    environment.while_shipping = full
    monkeypatch.setattr(lifecycle, "mark_ended", lambda *_: full())
    with pytest.raises(OSError, match="No space left"):
        go(run, environment)
    assert [what for what, _ in environment.asked] == ["cancel"]
    assert (environment.is_down, environment.volume_stays) == (True, True)
    assert environment.said == [kept(run.run_id)]


@pytest.mark.parametrize("kind", [LabError, OSError, ValueError])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_run_that_was_not_collected_is_never_removed(
    run: RunDir,
    environment: Told,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Exception],
    damaged: bool,
) -> None:
    """Whatever the error is, and also if the run's program has damaged its request."""
    monkeypatch.setattr("lab.run.collect.REFUSED_S", 0.0)

    def fail() -> None:
        if damaged:
            environment.volume.request(run.run_id).write_text("{")
        raise kind("it fails")

    environment.tasks_do = train
    environment.while_shipping = fail
    with pytest.raises((kind, LabError)):
        go(run, environment)
    assert not run.complete()
    assert (environment.is_down, environment.volume_stays) == (True, True)
    assert kept(run.run_id) in environment.said


def test_the_volume_stays_for_an_ended_run_that_its_client_has_not_collected(
    run: RunDir, environment: Told
) -> None:
    other = Request("other", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec())

    def another() -> None:
        environment.submit(other)
        environment.threads[-1].join()

    environment.tasks_do = train
    environment.while_going_down = another
    go(run, environment)
    assert (environment.is_down, environment.volume_stays) == (True, True)
    assert environment.said == [kept("other")]


@pytest.mark.usefixtures("impatient")
def test_a_full_disk_does_not_hide_the_interrupt(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        environment.while_shipping = full
        raise KeyboardInterrupt

    environment.tasks_do = lambda volume, request: write_records(
        volume, request.run_id, "worker-0", [record("worker-0", 0, local_step=1)]
    )
    environment.while_shipping = interrupted
    monkeypatch.setattr(lifecycle, "mark_ended", lambda *_: full())
    environment.while_going_down = full
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert "[Errno 28] No space left on device" in environment.said
    assert "try again with `lab down mnist`" in environment.said[-1]


@pytest.mark.parametrize("answers", [True, False])
def test_a_full_disk_before_the_submission_leaves_nothing(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    def dumb() -> list[Request]:
        raise LabError("no engine answers")

    if not answers:
        monkeypatch.setattr(environment, "runs", dumb)
    environment.before_submission = full
    with pytest.raises(OSError, match="No space left"):
        go(run, environment)
    assert run.path.exists() is not answers
    assert environment.is_down is answers


def test_an_environment_with_another_run_stays_up(run: RunDir, environment: Told) -> None:
    other = Request("other", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec())

    def tasks(volume: Volume, request: Request) -> None:
        train(volume, request)
        if request is not other:
            environment.tasks_do = lambda _volume, _request: None
            environment.submit(other)

    environment.tasks_do = tasks
    go(run, environment)
    environment.threads[0].join()
    assert run.complete()
    assert not environment.is_down
    assert environment.said == ["environment 'mnist' stays up: run other is under way in it"]


@pytest.mark.parametrize("submitted_unix", [1.0, 4e9])
def test_an_environment_with_a_starting_run_stays_up(
    run: RunDir, environment: Told, submitted_unix: float
) -> None:
    def another() -> None:
        environment.tasks_do = lambda _volume, _request: None
        environment.submit(
            Request(
                "other",
                RunSpec("async", "mnist_async.py"),
                PLAN.cluster_spec(),
                submitted_unix=submitted_unix,
            )
        )

    environment.tasks_do = train
    environment.while_going_down = another
    go(run, environment)
    assert not environment.is_down
    assert environment.said == ["environment 'mnist' stays up: run other is under way in it"]


@pytest.mark.parametrize("busy_s", [5.0, 0.0])
def test_an_environment_locked_by_another_command_is_no_failure(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, busy_s: float
) -> None:
    until = [True, True]

    def busy() -> None:
        if until:
            until.pop()
            raise locking.Busy("another command uses it", "wait")

    monkeypatch.setattr(locking, "BUSY_S", busy_s)
    environment.tasks_do = train
    environment.while_going_down = busy
    go(run, environment)
    assert environment.is_down is (busy_s > 0)
    assert environment.said == (
        []
        if busy_s
        else [
            "environment 'mnist' stays up: another command uses it; try again with `lab down mnist`"
        ]
    )


def test_interrupted_client_does_not_wait_for_a_hanging_engine(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(conducting, "DOWN_S", 0.1)
    environment.before_submission = interrupted
    environment.while_going_down = lambda: released.wait(PATIENCE_S) and None
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert environment.said[-1] == (
        "environment 'mnist' is not removed after 0.1 s; try again with `lab down mnist`"
    )


def test_the_faults_of_a_run_end_with_it(
    run: RunDir, environment: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[bool] = []

    def at_the_end(_self: object) -> None:
        ended.append(run.read().collected)

    monkeypatch.setattr(conducting.NetworkFaults, "end", at_the_end)
    environment.tasks_do = train
    go(run, environment)
    assert ended == [True]


@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize(
    ("fault", "what"),
    [
        (LabError("the engine does not answer", "restart it"), "the engine does not answer"),
        (OSError(errno.ENOSPC, "No space left on device"), "[Errno 28] No space left on device"),
    ],
    ids=["no answer", "no space"],
)
def test_a_run_continues_on_unknown_hardware(
    run: RunDir,
    environment: Told,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    what: str,
    detach: bool,
) -> None:
    def unknown(_self: object) -> tuple[str, str]:
        raise fault

    monkeypatch.setattr(FakeEnvironment, "boot_file", unknown)
    environment.tasks_do = train
    go(run, environment, detach=detach)
    assert stands(run) == (State.STARTING if detach else State.SUCCEEDED, "")
    assert environment.asked == []  # no command has ended it
    assert f"{what}; run.json does not describe the environment" in environment.said


def stuck() -> None:
    """An environment that does not go."""
    raise LabError("it did not end", "look at it")


def test_a_succeeded_run_reports_leftovers(run: RunDir, environment: Told) -> None:
    environment.tasks_do = train
    environment.while_going_down = stuck
    go(run, environment)
    assert stands(run) == (State.SUCCEEDED, "")
    assert environment.said[-1] == "it did not end; look at it; try again with `lab down mnist`"


def test_leftovers_do_not_hide_the_interrupt(run: RunDir, environment: Told) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    environment.before_submission = interrupted
    environment.while_going_down = stuck
    with pytest.raises(KeyboardInterrupt):
        go(run, environment)
    assert environment.said[-1] == "it did not end; look at it; try again with `lab down mnist`"


def test_a_closed_terminal_does_not_change_how_a_run_ended(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*_args: object, **_more: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(output, "show", closed)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr("sys.stdout", out)
        code = errno.ENOSPC
        with pytest.raises(OSError, match="No space left"):
            output.print_summary(summarize(run), json=False)
        code = errno.EIO
        output.print_summary(summarize(run), json=False)
        out.write("more")
    assert (tmp_path / "out").read_text() == ""
