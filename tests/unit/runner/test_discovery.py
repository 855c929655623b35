"""Commands on environments and their runs: run, up, down, cancel, attach, ps, logs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lab.backends.environment import Check
from lab.backends.state import Busy, state_directory
from lab.base.errors import InputError, LabError
from lab.base.signals import EXIT_INTERRUPTED
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.states import State
from lab.runner.recovery import collect_one, run_all
from lab.runner.run_queue import Ticket
from lab.runner.store.directory import RunDir
from tests.support.agents import PATIENCE_S
from tests.support.cli import Host
from tests.support.fakes import FakeEnvironment, end, end_all, record, train, write_records

RUN = "run async --gpus none"


def under_way(volume: Volume, request: Request) -> None:
    write_records(volume, request.run_id, "worker-0", [record("worker-0", 0)])


def collected() -> list[str]:
    return [path.name for path in Path("runs").iterdir()] if Path("runs").exists() else []


def test_run_prints_its_summary_last(host: Host) -> None:
    out, err = host.lab(f"{RUN} --epochs 1 --log_device_placement=false --json -- --x y")
    (line,) = out.splitlines()
    summary = json.loads(line)
    assert (summary["state"], summary["updates_conserved"]) == ("succeeded", True)
    assert "every update counted" in err
    assert not host.environment.is_down
    info = RunDir(Path("runs") / summary["run_id"]).read()
    assert info.spec.args[1:] == ("--epochs=1", "--x", "y")
    assert host.environment.runs()[0].spec.args == info.spec.args


def test_failed_run_exits_1_with_the_tasks_last_lines(host: Host) -> None:
    def fail(volume: Volume, request: Request) -> None:
        volume.log(request.run_id, "worker-0").write_bytes(
            b"".join(b"line %d\n" % number for number in range(99))
            + b"\x1b[31m\xffboom\r\n"
            + b"WARNING: All log messages before absl::InitializeLog() is called are written\n"
            + b"I0000 00:00:1795318304.942015   28004 port.cc:153] oneDNN is on\n"
            + b"E0000 00:00:1795318305.942015   28004 server.cc:153] this counts\n"
            + 20 * b"W0000 00:00:1795318326.7   28800 local_rendezvous.cc:412] aborting\n"
        )
        end_all(volume, request, State.FAILED, reason="exit code 7")

    host.environment.tasks_do = fail
    out, err = host.lab(RUN, 1)
    assert ("failed" in out, "\x1b" in out + err) == (True, False)
    assert "worker-0  | \ufffdboom" in err
    # Each line is shown at once, and the last ones again at the end.
    assert (err.count("| line 91\n"), err.count("| line 80\n")) == (2, 1)
    assert "this counts" in err
    assert not any(word in err for word in ("absl", "oneDNN", "aborting"))
    last = err.splitlines()[-1]
    assert re.match(r"error: run .*ps-0 and \d others failed: exit code 7", last)


@pytest.mark.parametrize("line", [RUN, "up --gpus none"])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_sha256": "other"}, "was booted from another version of cluster.yaml; undo the"),
        (
            {"runtime": "tensorflow-2.15"},
            "has tensorflow-2.15, but tensorflow is needed; run `lab down mnist`",
        ),
        ({"sources_sha256": "0" * 64}, "has a different version of lab's code; run `lab"),
    ],
)
def test_an_environment_that_does_not_fit_is_refused(
    host: Host, line: str, change: dict[str, str], error: str
) -> None:
    for name, value in change.items():
        setattr(host.environment, name, value)
    assert host.error(line).startswith(f"environment 'mnist' (local) {error}")
    assert collected() == []


def test_up_finds_the_environment_that_is_up(host: Host) -> None:
    (host.folder / "link").symlink_to(host.folder)
    host.environment.folder = str(host.folder / "link")
    assert "is already up" in host.lab("up --gpus none")[1]
    assert host.environment.blocked_before == [[]]


@pytest.mark.parametrize("place", ["queue", "boot", "end of the boot"])
def test_a_run_that_is_interrupted_before_it_starts_leaves_nothing(
    host: Host, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def up(*_: object, check: Check, **__: object) -> FakeEnvironment:
        if place == "boot":
            signal.raise_signal(signal.SIGINT)
        check(host.environment)
        signal.raise_signal(signal.SIGINT)
        return host.environment

    def begin(*_: object) -> None:
        raise KeyboardInterrupt

    if place == "queue":
        monkeypatch.setattr(Ticket, "begin", begin)
    else:
        monkeypatch.setattr(host.backend, "find", lambda _project: None)
        monkeypatch.setattr(host.backend, "up", up)
    host.lab(RUN, EXIT_INTERRUPTED)
    if place != "end of the boot":
        assert collected() == []
        assert "no run in runs has started" in host.error("show last")
    assert host.environment.is_down is (place == "end of the boot")


def test_down_collects_first(host: Host) -> None:
    host.submit()
    queue = state_directory() / "local/mnist.queue.00000001"
    queue.parent.mkdir(parents=True, exist_ok=True)
    queue.touch()  # a killed command has left it
    host.lab("down")
    assert host.environment.is_down
    assert RunDir(Path("runs/r1")).complete()
    assert not list(queue.parent.glob("*.queue*"))


def test_down_removes_nothing_that_it_could_not_collect(host: Host) -> None:
    host.submit()
    Path("runs").mkdir()
    Path("runs/r1").write_text("in the way")
    assert host.error("down", 1)
    assert not host.environment.is_down
    host.lab("down --discard --yes")
    assert host.environment.is_down


@pytest.mark.parametrize("removed", [True, False])
def test_down_accepts_that_another_command_removes_the_environment(
    host: Host, monkeypatch: pytest.MonkeyPatch, removed: bool
) -> None:
    def broken(*_: object, **__: object) -> None:
        if removed:
            host.backend.environment = None
        raise LabError("its container was stopped")

    host.submit()
    monkeypatch.setattr(host.environment, "stream", broken)
    _, err = host.lab("down", 0 if removed else 1)
    line = "another command has removed the environment: its container was stopped"
    assert (line in err, "error: " in err) == (removed, not removed)


@pytest.mark.parametrize("line", ["down", "down --all", "down --discard", "down --all --yes=false"])
def test_down_asks_before_it_ends_a_run(
    host: Host, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.submit(under_way)
    monkeypatch.setattr("sys.stdin", Path(os.devnull).open())  # noqa: SIM115
    question = "remove mnist (local)?"
    if line == "down":
        question = "run r1 is under way in mnist: cancel it?"
    assert host.error(line) == f"cannot ask: {question} (stdin is not a terminal); add --yes"
    master, terminal = os.openpty()
    os.write(master, b"n\n")
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert host.error(line) == "nothing was removed; answer y, or add --yes"
    os.close(master)
    assert not host.environment.is_down
    assert not host.environment.volume.cancel("r1").exists()


@pytest.mark.parametrize("tasks_do", [under_way, train])
def test_down_notices_a_run_that_another_client_submits_meanwhile(
    host: Host, monkeypatch: pytest.MonkeyPatch, tasks_do: Any
) -> None:
    """After `lab down` has looked for runs, before it has the lock."""
    down = host.environment.down

    def late(**given: Any) -> None:
        if not host.environment.runs():
            host.submit(tasks_do)
        down(**given)

    monkeypatch.setattr(host.environment, "down", late)
    monkeypatch.setattr("sys.stdin", Path(os.devnull).open())  # noqa: SIM115
    if tasks_do is train:
        host.lab("down")
        assert RunDir(Path("runs/r1")).complete()
    else:
        assert "run r1 is under way in mnist: cancel it?" in host.error("down")
        assert not host.environment.volume.cancel("r1").exists()
    assert host.environment.is_down is (tasks_do is train)


def test_down_waits_for_another_command(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    until = [True, True]

    def busy(**_: object) -> None:
        if until:
            until.pop()
            raise Busy("another command uses it")
        FakeEnvironment.down(host.environment)

    monkeypatch.setattr(host.environment, "down", busy)
    host.lab("down")
    assert (until, host.environment.is_down) == ([], True)


@contextlib.contextmanager
def followed(host: Host, *, ends: bool = True) -> Iterator[None]:
    """Run r1, under way, and a client that collects it after a request to end, if received."""
    collect_one(host.submit(under_way), host.environment, Path("runs"))
    begun, over = threading.Event(), threading.Event()
    volume = host.environment.volume

    def follow() -> None:
        with RunDir(Path("runs/r1").absolute()).locked():
            begun.set()
            while not (ends and volume.cancel("r1").exists()) and not over.is_set():
                time.sleep(0.01)
            for task in host.environment.runs()[0].tasks():
                end(volume, "r1", task, State.CANCELLED, reason="lab down")

    follower = threading.Thread(target=follow)
    follower.start()
    assert begun.wait(PATIENCE_S)
    try:
        yield
    finally:
        over.set()
        follower.join()


def test_down_ends_a_run_that_is_followed_and_waits_for_its_follower(host: Host) -> None:
    with followed(host):
        _, err = host.lab("down --yes")
    assert "run r1 is cancelled; the process that follows it will collect it\n" in err
    assert host.environment.is_down
    assert RunDir(Path("runs/r1")).read().state is State.CANCELLED
    assert RunDir(Path("runs/r1")).complete()


def test_a_follower_that_has_stopped_holds_up_its_own_environment_only(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host.folder / "other").mkdir()
    other = FakeEnvironment(host.folder / "other", project="other")
    replace(host, environment=other).submit(run_id="r2")
    monkeypatch.setattr(host.backend, "list_environments", lambda: [host.environment, other])
    monkeypatch.setattr("lab.runner.recovery.FOLLOWER_S", 0.1)
    with followed(host, ends=False):
        assert host.error("attach r1", 1).startswith("another process collects run r1; wait until")
        assert host.error("down --all --yes", 1) == (
            "another process is following run r1 and does not end; end that process; or cancel the"
            " run and discard its files with `lab cancel r1` and `lab down mnist --discard`"
        )
    assert (host.environment.is_down, other.is_down) == (False, True)


def test_failures_of_several_have_a_line_each(notices: list[str]) -> None:
    def actions(*errors: LabError) -> list[Any]:
        return [Mock(side_effect=each) for each in errors]

    with pytest.raises(LabError, match="last"):
        run_all(actions(*map(LabError, ("first", "first", "last", "first", "last"))))
    assert notices == ["first"]
    with pytest.raises(InputError, match="no"):
        run_all(actions(LabError("before"), InputError("no"), LabError("it went on")))
    assert notices == ["first", "before"]


def test_cancel_ends_the_remaining_tasks_of_the_newest_run_and_collects_nothing(host: Host) -> None:
    def one_has_ended(volume: Volume, request: Request) -> None:
        end(volume, request.run_id, "worker-0", State.SUCCEEDED)

    first, second = "20260101-0000-async-aaaa", "20260202-0000-async-bbbb"
    host.submit(train, first)
    host.submit(one_has_ended, second)
    _, err = host.lab("cancel")
    assert err == f"run {second} is cancelled; collect it with `lab attach {second}`\n"
    volume = host.environment.volume
    assert not volume.cancel(first).exists()
    assert json.loads(volume.cancel(second).read_text())["reason"] == "cancelled by `lab cancel`"
    assert not volume.kill(second).exists()
    assert (host.environment.is_down, collected()) == (False, [])


@pytest.mark.parametrize("line", ["cancel", "cancel r1", "cancel r"])
def test_cancel_of_a_run_that_has_ended_is_refused(host: Host, line: str) -> None:
    host.submit()
    assert host.error(line) == "run r1 has already ended; see its result with `lab show r1`"
    assert not host.environment.volume.cancel("r1").exists()


def test_a_run_that_nobody_followed_is_collected_once_and_then_shown_again(host: Host) -> None:
    host.submit()
    out, err = host.lab("attach last")
    assert "every update counted" in out
    assert "run r1: succeeded, collected into" in err
    records = Path("runs/r1/tasks/worker-0.jsonl")
    before = records.read_bytes()
    again, err = host.lab("attach r")
    assert again == out
    assert err.startswith("replay of run r1 of 1970-")
    assert "collected into" not in err
    assert records.read_bytes() == before
    host.backend.environment = None
    assert host.lab("attach r1")[0] == out
    assert "is not on any run volume, so nothing can be collected" in host.error(
        "attach r1 --all-sizes"
    )


def test_attach_removes_no_environment_that_starts_meanwhile(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.submit()
    tasks, down, alive = host.environment.tasks(), host.environment.down, [False]

    def late(**given: Any) -> None:
        alive[0] = True  # another command has started it again
        down(**given)

    monkeypatch.setattr(host.environment, "down", late)
    monkeypatch.setattr(
        host.environment, "tasks", lambda: [replace(each, alive=alive[0]) for each in tasks]
    )
    host.lab("attach r1")  # it removes nothing
    assert alive == [False]
    host.lab("attach r1 --all-sizes")
    assert (alive, host.environment.is_down) == ([True], False)


def test_a_large_file_stays_on_the_volume_until_all_sizes_are_collected(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(volume: Volume, request: Request) -> None:
        for name in ("large", "fits"):
            (volume.files(request.run_id) / name).write_text(name)
        train(volume, request)

    monkeypatch.setattr("lab.protocol.volume.transfer.MAX_FILE", 4)
    host.submit(leave)
    out, err = host.lab("attach r1", 1)
    assert "files/large: it has 5 bytes, more than 4" in out
    assert Path("runs/r1/files/fits").read_text() == "fits"
    assert err.endswith("collect files of any size with `lab attach r1 --all-sizes`\n")
    assert "the run volume of 'mnist' is kept" in host.lab("down")[1]
    assert host.environment.volume_stays
    monkeypatch.setattr(host.environment, "tasks", list)  # no agent is left
    host.lab("attach r1 --all-sizes")
    assert Path("runs/r1/files/large").read_text() == "large"
    assert not host.environment.volume_stays
    assert RunDir(Path("runs/r1")).read().left == ()
    host.environment.volume_stays = True
    host.lab("down --discard --yes")
    assert not host.environment.volume_stays


def test_listings(host: Host) -> None:
    def fail(volume: Volume, request: Request) -> None:
        for task in request.tasks():
            end(volume, request.run_id, task, State.FAILED, reason=f"cannot open [/lab/{task}]")

    host.submit(fail)
    (row,) = json.loads(host.lab("ps --json")[0])
    assert (row["name"], row["backend"], row["tasks"], row["runs"]) == ("mnist", "local", 3, 1)
    rows = json.loads(host.lab("ps mnist --json")[0])
    assert [(row["task"], row["run"], row["state"]) for row in rows] == [
        (task, "r1", "failed") for task in ("ps-0", "worker-0", "worker-1")
    ]
    out, _ = host.lab("ps mnist")
    assert "in run r1" in out
    assert "failed: cannot open [/lab/worker-1]" in out


def test_logs_and_shell_reach_the_tasks(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = host.lab("logs --task worker-1,ps-0")
    assert out == "worker-1  | \\x1b[31mred\nps-0  | \\x1b[31mred\n"
    became: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda _file, argv: became.append(argv))
    host.lab("shell worker-1")
    for line in ("logs --task worker-9", "shell worker-9", "shell 'worker-1; rm -rf /'"):
        assert "; its tasks: ps-0, worker-0, worker-1" in host.error(line)
    assert became == [["echo", "worker-1"]]
