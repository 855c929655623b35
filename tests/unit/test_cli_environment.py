"""Commands on environments: their selection, and the effects of `down`, `collect` and `run`."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.backends import Backend, Check, Notify
from lab.backends.selection import check_compatible, choose, resolve
from lab.backends.state import Busy, state_directory
from lab.cli import main
from lab.console import notify
from lab.errors import InputError, LabError
from lab.placement.plan import Plan
from lab.run.run_queue import Ticket
from lab.run.store import RunDir
from lab.service.environments import run_all
from lab.signals import EXIT_INTERRUPTED
from lab.task.protocol import Request, RunSpec, Volume
from lab.task.protocol.states import State
from tests.support.agents import PATIENCE_S
from tests.support.cli import CLUSTER
from tests.support.fakes import (
    PLAN,
    FakeBackend,
    FakeEnvironment,
    end,
    record,
    train,
    write_records,
)

USERS = ("cli.commands.ls", "cli.commands.up", "service.environments", "service.run")


@pytest.fixture
def environment(tmp_path: Path) -> FakeEnvironment:
    (tmp_path / "volume").mkdir()
    return FakeEnvironment(tmp_path / "volume")


@pytest.fixture
def backend(
    environment: FakeEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeBackend]:
    """A backend where an environment is up, in a directory with a project."""
    made = FakeBackend("local", environment)
    for name in USERS:
        monkeypatch.setattr(f"lab.{name}.backends", lambda: [made])
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/mnist_async.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    yield made
    for thread in environment.threads:
        thread.join(30)


def matching(environment: FakeEnvironment) -> None:
    """Give the environment the digest of the config."""
    from lab.config import load_cluster  # noqa: PLC0415  (pydantic, for these tests only)

    environment.cluster_sha256 = load_cluster(Path("cluster.yaml")).sha256


# ---- Which backend, which environment


def chosen(name: str, *known: Backend, plan: Plan = PLAN) -> tuple[str, str]:
    output: list[str] = []
    choice = choose(name, plan, Path(), known, output.append)
    (line,) = output
    return choice.backend.name, line


PROCESSES = ("local", "backend local: TensorFlow is installed here, and no task has a GPU")


def test_auto_takes_the_backend_that_needs_no_image_to_be_built() -> None:
    local, compose = FakeBackend("local"), FakeBackend("compose")
    assert chosen("auto", compose, local) == ("compose", "backend compose: its image is built")
    compose.builds = True
    assert chosen("auto", compose, local) == PROCESSES
    assert chosen("compose", compose, local) == ("compose", "backend compose: as requested")
    local.fault = "no TensorFlow"
    why = "backend compose: local: no TensorFlow"
    assert chosen("auto", compose, local) == ("compose", why)


def test_auto_takes_containers_for_gpus() -> None:
    local, compose = FakeBackend("local"), FakeBackend("compose")
    compose.builds = True
    task, *others = PLAN.tasks
    gpus = replace(PLAN, tasks=(replace(task, gpus=("0",)), *others))
    assert chosen("auto", compose, local, plan=gpus) == (
        "compose",
        "backend compose: its tasks have GPUs",
    )
    compose.fault = "no engine answers; start one"
    assert chosen("auto", compose, local, plan=gpus) == (
        "local",
        "backend local: compose: no engine answers; start one",
    )


def test_auto_takes_the_first_usable_backend_and_reports_why() -> None:
    local, compose = FakeBackend("local"), FakeBackend("compose")
    compose.fault = "no engine answers; start one"
    assert chosen("auto", compose, local) == PROCESSES
    assert chosen("local", compose, local) == ("local", "backend local: as requested")
    with pytest.raises(LabError, match="backend compose: no engine answers"):
        chosen("compose", compose, local)
    compose.fault, compose.no_image = None, "no image"
    assert chosen("auto", compose, local) == PROCESSES
    with pytest.raises(LabError, match="backend compose: no image"):
        chosen("compose", compose, local)
    compose.fault, local.fault = "no engine answers", "no TensorFlow"
    with pytest.raises(LabError, match=r"backend compose: no engine.*backend local: no Tensor"):
        chosen("auto", compose, local)


def test_auto_takes_the_running_environment(environment: FakeEnvironment) -> None:
    local, compose = FakeBackend("local", environment), FakeBackend("compose")
    assert chosen("auto", compose, local) == (
        "local",
        "backend local: environment 'mnist' is up",
    )
    assert chosen("compose", compose, local)[0] == "compose"


def test_an_environment_of_another_config_is_refused(environment: FakeEnvironment) -> None:
    check_compatible(environment, PLAN, "cluster.yaml", Path("/p"))
    with pytest.raises(InputError, match="undo the change to the config, or run `lab down mnist`"):
        check_compatible(
            environment, replace(PLAN, cluster_sha256="other"), "cluster.yaml", Path("/p")
        )


def test_an_environment_with_another_tensorflow_is_refused(environment: FakeEnvironment) -> None:
    with pytest.raises(InputError, match=r"'mnist' \(local\) has TensorFlow 2.21, but 2.15 is"):
        check_compatible(environment, replace(PLAN, tensorflow="2.15"), "cluster.yaml", Path("/p"))


@pytest.mark.parametrize("digest", ["0" * 64, ""])  # "": of a lab that knew of none
@pytest.mark.parametrize("arguments", [["run", "async"], ["up"]])
def test_an_environment_with_another_version_of_lab_is_refused(
    backend: FakeBackend,
    environment: FakeEnvironment,
    capfd: pytest.CaptureFixture[str],
    digest: str,
    arguments: list[str],
) -> None:
    matching(environment)
    environment.sources_sha256 = digest
    assert main([*arguments, "--gpus", "none"]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == (
        "error: environment 'mnist' (local) has another version of lab/task than this lab;"
        " run `lab down mnist`, then try again"
    )
    assert not Path("runs").exists()


def test_an_environment_of_another_folder_is_refused(
    backend: FakeBackend,
    environment: FakeEnvironment,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    environment.folder = str(link)
    check_compatible(environment, PLAN, "cluster.yaml", tmp_path)
    matching(environment)
    environment.folder = "/home/\x1bada"
    for arguments in (["run", "async"], ["up"]):
        assert main([*arguments, "--gpus", "none"]) == 2
        assert capfd.readouterr().err.splitlines()[-1] == (
            "error: environment 'mnist' (local) was booted from /home/\\x1bada; run"
            " `lab down mnist` there, or set another `name:` in this config"
        )
    assert not Path("runs").exists()


def test_named(environment: FakeEnvironment, tmp_path: Path) -> None:
    other = FakeEnvironment(tmp_path, project="book", backend="compose")
    both = [FakeBackend("local", environment), FakeBackend("compose", other)]
    assert resolve("book", None, both) is other
    assert resolve(None, "mnist", both) is environment
    assert resolve(None, "elsewhere", both[:1]) is environment
    with pytest.raises(InputError, match=r"several environments are up \(book, mnist\)"):
        resolve(None, None, both)
    with pytest.raises(InputError, match="no environment 'x' is up; these are up: book, mnist"):
        resolve("x", "mnist", both)
    with pytest.raises(InputError, match="boot one with `lab up`"):
        resolve(None, None, [])


# ---- run


def test_run_prints_its_summary_last(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    matching(environment)
    arguments = ["run", "async", "--epochs", "1", "--gpus", "none", "--json", "--", "--x", "y"]
    assert main(arguments) == 0
    out, err = capfd.readouterr()
    (line,) = out.splitlines()
    summary = json.loads(line)
    assert (summary["state"], summary["updates_conserved"]) == ("succeeded", True)
    assert "every update counted" in err
    assert not environment.is_down
    info = RunDir(Path("runs") / summary["run_id"]).read()
    assert info.spec.args[1:] == ("--epochs=1", "--x", "y")
    assert environment.runs()[0].spec.args == info.spec.args


def test_failed_run_exits_1_with_the_tasks_last_lines(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(volume: Volume, request: Request) -> None:
        volume.log(request.run_id, "worker-0").write_bytes(
            b"".join(b"line %d\n" % number for number in range(99))
            + b"\x1b[31m\xffboom\r\n"
            + b"WARNING: All log messages before absl::InitializeLog() is called are written\n"
            + b"I0000 00:00:1795318304.942015   28004 port.cc:153] oneDNN is on\n"
            + b"E0000 00:00:1795318305.942015   28004 server.cc:153] this counts\n"
            + 20 * b"W0000 00:00:1795318326.7   28800 local_rendezvous.cc:412] aborting\n"
        )
        for task in request.tasks():
            end(volume, request.run_id, task, State.FAILED, exit_code=7)

    matching(environment)
    environment.tasks_do = fail
    assert main(["run", "async", "--gpus", "none"]) == 1
    out, err = capfd.readouterr()
    assert "failed" in out
    assert "worker-0  | \ufffdboom" in err
    assert "\x1b" not in err
    # Each line is shown at once, and the last ones again at the end.
    assert (err.count("| line 91\n"), err.count("| line 80\n")) == (2, 1)
    assert "this counts" in err
    assert not any(word in err for word in ("absl", "oneDNN", "aborting"))
    assert "\x1b" not in out + err
    assert err.splitlines()[-1].startswith("error: run ")
    assert re.search(r"ps-0 and \d others failed: exit code 7", err.splitlines()[-1])


def test_run_is_refused_in_an_environment_of_another_config(
    backend: FakeBackend, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "async", "--gpus", "none"]) == 2
    assert "was booted from another version of cluster.yaml" in capfd.readouterr().err
    assert not Path("runs").exists()


def test_a_second_run_is_refused_while_one_is_under_way(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    matching(environment)
    environment.tasks_do = lambda _volume, _request: None
    environment.submit(Request("first", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    assert main(["run", "async", "--gpus", "none"]) == 1
    assert "error: run first is under way; wait" in capfd.readouterr().err
    # Nothing is left of it: no directory, no request, no place in the queue.
    assert not list(Path("runs").iterdir())
    assert [request.run_id for request in environment.runs()] == ["first"]
    assert not list(state_directory().rglob("*.queue.*"))


def test_an_interrupt_before_the_boot_leaves_no_run(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    matching(environment)
    monkeypatch.setattr(Ticket, "begin", interrupted)
    assert main(["run", "async", "--gpus", "none"]) == EXIT_INTERRUPTED
    assert not list(Path("runs").iterdir())


def test_with_wait_it_starts_after_the_other_run(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    matching(environment)
    environment.tasks_do = lambda _volume, _request: None
    environment.submit(Request("first", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.tasks_do = train
    (first,) = environment.runs()
    ending = threading.Timer(1.0, lambda: train(environment.volume, first))
    ending.start()
    assert main(["run", "async", "--gpus", "none", "--wait"]) == 0
    ending.join()
    assert (
        "waiting for run first in environment 'mnist': position 1 in the queue"
        in capfd.readouterr().err
    )
    _, second = environment.runs()
    assert [path.name for path in Path("runs").iterdir()] == [second.run_id]


def test_run_refused_for_held_gpus_leaves_nothing(
    backend: FakeBackend,
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(backend, "find", lambda _project: None)

    def refuse(*_: object, share: bool, **__: object) -> FakeEnvironment:
        if share:
            return environment
        raise LabError("GPU 1 is held by environment 'anna'")

    monkeypatch.setattr(backend, "up", refuse)
    assert main(["run", "async", "--gpus", "none"]) == 1
    assert "error: GPU 1 is held by environment 'anna'\n" in capfd.readouterr().err
    assert not list(Path("runs").iterdir())
    assert main(["up", "--gpus", "none"]) == 1
    assert main(["up", "--gpus", "none", "--share"]) == 0
    assert main(["run", "async", "--gpus", "none", "--share"]) == 0


# ---- down and collect


def under_way(volume: Volume, request: Request) -> None:
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0)])


def test_down_collects_first(backend: FakeBackend, environment: FakeEnvironment) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    queue = state_directory() / "local/mnist.queue.00000001"
    queue.parent.mkdir(parents=True, exist_ok=True)
    queue.touch()  # a killed command has left it
    assert main(["down"]) == 0
    assert environment.is_down
    assert RunDir(Path("runs/r1")).complete()
    assert not list(queue.parent.glob("*.queue*"))


def test_down_removes_nothing_that_it_could_not_collect(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    Path("runs").mkdir()
    Path("runs/r1").write_text("in the way")
    assert main(["down"]) == 1
    assert not environment.is_down
    assert "error: " in capfd.readouterr().err
    assert main(["down", "--discard", "--yes"]) == 0
    assert environment.is_down


@pytest.mark.parametrize("removed", [True, False])
def test_down_accepts_that_another_command_removes_the_environment(
    backend: FakeBackend,
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    removed: bool,
) -> None:
    def broken(*_: object, **__: object) -> None:
        if removed:
            backend.environment = None
        raise LabError("its container was stopped")

    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    monkeypatch.setattr(environment, "stream", broken)
    assert main(["down"]) == (0 if removed else 1)
    said = "another command has removed the environment: its container was stopped"
    error = capfd.readouterr().err
    assert (said in error) is removed
    assert ("error: " in error) is not removed


@pytest.mark.parametrize("arguments", [["down"], ["down", "--all"], ["down", "--discard"]])
def test_down_confirms_before_it_ends_a_run(
    backend: FakeBackend,
    environment: FakeEnvironment,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    environment.tasks_do = under_way
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert main(arguments) == 2
    assert "add --yes" in capfd.readouterr().err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda: "no")
    assert main(arguments) == 2
    assert not environment.is_down
    assert not environment.volume.cancel("r1").exists()


def submit_at_the_removal(
    environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch, tasks_do: Any
) -> None:
    """Another client submits r1 after `lab down` has looked for runs, before it has the lock."""
    down = environment.down

    def late(notify: Notify, **given: Any) -> None:
        if not environment.runs():
            environment.tasks_do = tasks_do
            environment.submit(Request("r1", RunSpec("async", "x.py"), PLAN.cluster_spec()))
            environment.threads[0].join()
        down(notify, **given)

    monkeypatch.setattr(environment, "down", late)


def test_down_confirms_before_it_ends_a_run_that_starts_meanwhile(
    backend: FakeBackend,
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    submit_at_the_removal(environment, monkeypatch, under_way)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    assert main(["down"]) == 2
    assert "run r1 is under way in mnist: cancel it?" in capfd.readouterr().err
    assert not environment.is_down
    assert not environment.volume.cancel("r1").exists()


def test_down_collects_a_run_that_ends_meanwhile(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_at_the_removal(environment, monkeypatch, train)
    assert main(["down"]) == 0
    assert environment.is_down
    assert RunDir(Path("runs/r1")).complete()


def test_collect_removes_no_environment_that_starts_meanwhile(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = iter([False] * 100)
    down = environment.down

    def late(notify: Notify, **given: Any) -> None:
        nonlocal alive
        alive = iter(())  # another command has started it again
        down(notify, **given)

    monkeypatch.setattr(environment, "down", late)
    tasks = environment.tasks
    monkeypatch.setattr(
        environment, "tasks", lambda: [replace(each, alive=next(alive, True)) for each in tasks()]
    )
    assert main(["collect", "--all-sizes"]) == 0
    assert not environment.is_down


@contextlib.contextmanager
def followed(environment: FakeEnvironment, *, ends: bool = True) -> Iterator[None]:
    """Run r1, under way, and a client that collects it after a request to end, if received."""
    environment.tasks_do = under_way
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads.pop().join()
    assert main(["collect", "r1"]) == 0
    begun, over = threading.Event(), threading.Event()

    def follow() -> None:
        with RunDir(Path("runs/r1").absolute()).locked():
            begun.set()
            while not (ends and environment.volume.cancel("r1").exists()) and not over.is_set():
                time.sleep(0.01)
            for task in environment.runs()[0].tasks():
                end(environment.volume, "r1", task, State.CANCELLED, reason="lab down")

    helper = threading.Thread(target=follow)
    helper.start()
    assert begun.wait(PATIENCE_S)
    try:
        yield
    finally:
        over.set()
        helper.join()


def test_down_ends_a_run_that_is_followed_and_waits_for_its_follower(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    with followed(environment):
        assert main(["down", "--yes"]) == 0
    assert (
        "run r1 is cancelled; the process that follows it collects it\n" in capfd.readouterr().err
    )
    assert environment.is_down
    assert RunDir(Path("runs/r1")).read().state is State.CANCELLED
    assert RunDir(Path("runs/r1")).complete()


def test_a_follower_that_has_stopped_holds_up_its_own_environment_only(
    backend: FakeBackend,
    environment: FakeEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    other = FakeEnvironment(tmp_path / "other", project="other")
    other.root.mkdir()
    other.submit(Request("r2", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    other.threads[0].join()
    monkeypatch.setattr(backend, "all", lambda: [environment, other])
    monkeypatch.setattr("lab.service.environments.FOLLOWER_S", 0.1)
    with followed(environment, ends=False):
        capfd.readouterr()
        assert main(["collect"]) == 1
        assert RunDir(Path("runs/r2")).complete()
        assert capfd.readouterr().err.endswith(
            "error: another process collects run r1; wait until that process has ended\n"
        )
        assert main(["down", "--all", "--yes"]) == 1
    assert (environment.is_down, other.is_down) == (False, True)
    assert capfd.readouterr().err.splitlines()[-1] == (
        "error: another process follows run r1 and does not end; end that process; or cancel the"
        " run and discard its files with `lab cancel r1` and `lab down mnist --discard`"
    )


# ---- cancel


def test_cancel_ends_the_tasks_and_collects_nothing(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    environment.tasks_do = under_way
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(["cancel", "r1"]) == 0
    asked = json.loads(environment.volume.cancel("r1").read_text())
    assert asked["reason"] == "cancelled by `lab cancel`"
    assert not environment.volume.kill("r1").exists()
    assert capfd.readouterr().err == "run r1 is cancelled; collect it with `lab collect r1`\n"
    assert not environment.is_down
    assert not Path("runs").exists()


def test_cancel_takes_the_newest_run(backend: FakeBackend, environment: FakeEnvironment) -> None:
    for run_id in ("20260101-0000-async-aaaa", "20260202-0000-async-bbbb"):
        environment.submit(Request(run_id, RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
        environment.threads.pop().join()
        environment.tasks_do = under_way
    assert main(["cancel"]) == 0
    assert not environment.volume.cancel("20260101-0000-async-aaaa").exists()
    assert environment.volume.cancel("20260202-0000-async-bbbb").exists()


def test_cancel_ends_the_remaining_tasks(
    backend: FakeBackend, environment: FakeEnvironment
) -> None:
    def one_has_ended(volume: Volume, request: Request) -> None:
        end(volume, request.run_id, "worker-0", State.SUCCEEDED)

    environment.tasks_do = one_has_ended
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(["cancel", "r1"]) == 0
    assert environment.volume.cancel("r1").exists()


@pytest.mark.parametrize("arguments", [["cancel"], ["cancel", "r1"], ["cancel", "r"]])
def test_cancel_of_a_run_that_has_ended_is_refused(
    arguments: list[str],
    backend: FakeBackend,
    environment: FakeEnvironment,
    capfd: pytest.CaptureFixture[str],
) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(arguments) == 2
    assert capfd.readouterr().err == (
        "error: run r1 has already ended; see its result with `lab show r1`\n"
    )
    assert not environment.volume.cancel("r1").exists()


def test_cancel_of_an_unknown_run_is_refused(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    environment.tasks_do = under_way
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(["cancel", "r2"]) == 2
    assert capfd.readouterr().err.startswith("error: ")
    assert not environment.volume.cancel("r1").exists()


def test_faults_of_several_have_a_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(error: LabError) -> Callable[[], None]:
        def fail() -> None:
            raise error

        return fail

    names = ("first", "first", "last", "first", "last")
    with pytest.raises(LabError, match="last"):
        run_all([fails(LabError(name)) for name in names], notify)
    assert capfd.readouterr().err == "first\n"

    def never() -> None:
        pytest.fail("it went on")

    with pytest.raises(InputError, match="no"):
        run_all([fails(LabError("before")), fails(InputError("no")), never], notify)
    assert capfd.readouterr().err == "before\n"


def test_down_waits_for_another_command(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = [True, True]

    def busy(notify: Notify, **_: object) -> None:
        if until:
            until.pop()
            raise Busy("another command uses it")
        FakeEnvironment.down(environment, notify)

    monkeypatch.setattr(environment, "down", busy)
    assert main(["down"]) == 0
    assert environment.is_down


def test_interrupt_at_the_end_of_a_boot_removes_the_environment(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def up(*_: object, check: Check, **__: object) -> FakeEnvironment:
        check(environment)
        signal.raise_signal(signal.SIGINT)
        return environment

    monkeypatch.setattr(backend, "find", lambda _project: None)
    monkeypatch.setattr(backend, "up", up)
    assert main(["run", "async", "--gpus", "none"]) == EXIT_INTERRUPTED
    assert environment.is_down


def test_collect_one_and_all(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(["collect", "last"]) == 0
    assert "every update counted" in capfd.readouterr().out
    before = Path("runs/r1/tasks/worker-0.jsonl").read_bytes()
    assert main(["collect"]) == 0
    assert main(["collect", "r"]) == 0
    assert Path("runs/r1/tasks/worker-0.jsonl").read_bytes() == before
    backend.environment = None
    assert main(["collect", "r1"]) == 2
    assert "is on no run volume" in capfd.readouterr().err


# ---- ls, ps, logs, shell


def test_listings(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(["ls", "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["name"], row["backend"], row["tasks"], row["runs"]) == ("mnist", "local", 3, 1)
    assert main(["ps", "--json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    assert [(row["task"], row["run"], row["state"]) for row in rows] == [
        ("ps-0", "r1", "succeeded"),
        ("worker-0", "r1", "succeeded"),
        ("worker-1", "r1", "succeeded"),
    ]
    assert main(["ps", "mnist"]) == 0
    assert "in run r1" in capfd.readouterr().out


def test_ps_shows_a_reason_with_brackets_as_it_is(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(volume: Volume, request: Request) -> None:
        reasons = {"ps-0": "cannot open [/lab/x]", "worker-0": "one of [relu, tanh]"}
        for task in request.tasks():
            end(volume, request.run_id, task, State.FAILED, reason=reasons.get(task, "why"))

    environment.tasks_do = fail
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    environment.threads[0].join()
    assert main(["ps"]) == 0
    out = capfd.readouterr().out
    assert "failed: cannot open [/lab/x]" in out
    assert "failed: one of [relu, tanh]" in out


def test_ps_queries_the_tasks_once(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [environment.tasks()]  # a second question finds none
    monkeypatch.setattr(environment, "tasks", tasks.pop)
    assert main(["ps"]) == 0


def test_logs_are_sanitized(backend: FakeBackend, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "--task", "worker-1,ps-0"]) == 0
    assert capfd.readouterr().out == "worker-1  | \\x1b[31mred\nps-0  | \\x1b[31mred\n"
    assert main(["logs", "--task", "worker-9"]) == 2
    assert "use one of ps-0, worker-0, worker-1" in capfd.readouterr().err


def test_shell_executes_the_backends_command(
    backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    became: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda _file, argv: became.append(argv))
    assert main(["shell", "worker-1"]) == 0
    assert became == [["echo", "worker-1"]]
    assert main(["shell", "worker-1; rm -rf /"]) == 2
    assert len(became) == 1


def test_up_prints_its_end(
    backend: FakeBackend, environment: FakeEnvironment, capfd: pytest.CaptureFixture[str]
) -> None:
    matching(environment)
    assert main(["up", "--gpus", "none"]) == 0
    assert "is up already" in capfd.readouterr().err
    assert environment.blocked_before == [[]]
    environment.cluster_sha256 = "other"
    assert main(["up", "--gpus", "none"]) == 2


def test_a_large_file_stays_on_the_volume_until_all_sizes_are_collected(
    backend: FakeBackend,
    environment: FakeEnvironment,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("lab.task.probes.sync.MAX_FILE", 3)
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    (environment.volume.files("r1") / "large").write_text("large")
    environment.threads[0].join()
    assert main(["collect", "r1"]) == 1
    output = capfd.readouterr()
    assert "files/large: it has 5 bytes, more than 3" in output.out
    assert output.err.splitlines()[-1].endswith(
        "collect files of any size with `lab collect r1 --all-sizes`"
    )
    assert main(["down"]) == 0
    assert environment.volume_stays
    assert "the run volume of 'mnist' is kept" in capfd.readouterr().err
    monkeypatch.setattr(environment, "tasks", list)  # no agent is left
    assert main(["collect"]) == 0
    assert "the run volume of 'mnist' is kept" in capfd.readouterr().err
    assert main(["collect", "--all-sizes"]) == 0
    assert Path("runs/r1/files/large").read_text() == "large"
    assert not environment.volume_stays
    assert RunDir(Path("runs/r1")).read().left == ()


def test_down_with_discard_keeps_no_volume(
    backend: FakeBackend, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.task.probes.sync.MAX_FILE", 3)
    environment.submit(Request("r1", RunSpec("async", "mnist_async.py"), PLAN.cluster_spec()))
    (environment.volume.files("r1") / "large").write_text("large")
    environment.threads[0].join()
    assert main(["collect", "r1"]) == 1
    assert main(["down", "--discard", "--yes"]) == 0
    assert environment.is_down
    assert not environment.volume_stays
