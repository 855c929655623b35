"""Runs that end early: by keys, by signals, by a killed client, by a full disk.

The programs import no TensorFlow, so that it is quick.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.signals import REPEAT_S
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.commands import command, environ, lab, start
from tests.support.disks import fill, small_disk
from tests.support.terminals import CTRL_C, terminal

pytestmark = pytest.mark.tensorflow

CTRL_Z, CTRL_BACKSLASH = "\x1a", "\x1c"
CLUSTER = """\
version: 1
name: e2e-endings
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf2]}}
port: 24232
"""

SAVES = """\
import os, signal, sys, time
from pathlib import Path
from lab.task.sdk.recorder import Recorder

task = os.environ["LAB_TASK"]
recorder = Recorder(*task.split("-")[:1], int(task.split("-")[1]))
recorder.write("start")

def save(*_):
    Path("model").mkdir(exist_ok=True)
    Path("model/weights").write_text("saved")
    sys.exit(0)

signal.signal(signal.SIGTERM, save if task == "worker-0" else signal.SIG_DFL)
if task == "ps-0":
    signal.pause()
for step in range(1, 10**6):  # for hours: only the test ends it
    recorder.write("step", epoch=0, local_step=step, global_step=step, loss=1 / step)
    time.sleep(0.02)
"""

DEAF = SAVES.replace("save if task", "signal.SIG_IGN if task")
"""The same, whose chief ignores the request to end."""


RUN = ("run", "async", "--backend", "local", "--gpus", "none")


def ours(project: Path) -> list[str]:
    """The command lines of all processes that know this project's state directory."""
    mark = f"LAB_STATE={project / 'state'}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def left(project: Path) -> list[str]:
    """All that is left of the environment."""
    return ours(project) + [str(path) for path in (project / "state").glob("local/*/")]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project whose program a test writes; all of it is removed at the end."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "scripts").mkdir()
    program(tmp_path, SAVES)
    yield tmp_path
    start(tmp_path, "down", "--yes", "--discard").communicate(timeout=PATIENCE_S)
    assert left(tmp_path) == []


def program(project: Path, text: str) -> None:
    (project / "scripts/mnist_async.py").write_text(text)


def the_run(project: Path) -> Path:
    (run,) = (project / "runs").iterdir()
    return run


def info(project: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((the_run(project) / "run.json").read_text())
    return read


def has_steps(store: Path) -> bool:
    """Whether steps of both workers are collected."""

    def stepped(task: str) -> bool:
        return any(b'"step"' in path.read_bytes() for path in store.glob(f"*/tasks/{task}.jsonl"))

    return stepped("worker-0") and stepped("worker-1")


def trains(store: Path) -> None:
    """Wait until steps of both workers are collected."""
    wait_for(lambda: has_steps(store), "a step", PATIENCE_S)


def every_line_once(project: Path) -> int:
    """See that no record is missing or doubled; the number of the first worker's."""
    for task in ("worker-1", "worker-0"):
        lines = (the_run(project) / f"tasks/{task}.jsonl").read_text().splitlines()
        numbers = [json.loads(line)["seq"] for line in lines]
        assert numbers == list(range(len(numbers)))
    return len(numbers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP])
def test_the_first_signal_saves_collects_and_leaves_nothing(
    project: Path, number: signal.Signals
) -> None:
    process = start(project, *RUN)
    trains(project / "runs")
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert err.splitlines()[-1].startswith("error: run ")
    assert "cancelled" in out
    assert (info(project)["state"], info(project)["reason"]) == ("cancelled", "interrupted")
    assert (the_run(project) / "files/model/weights").read_text() == "saved"
    assert every_line_once(project) > 1
    assert left(project) == []
    assert not list(project.glob("core*"))


def test_the_second_ctrl_c_kills(project: Path) -> None:
    program(project, DEAF)
    with terminal(command(*RUN), cwd=project, env=environ(project)) as typed:
        typed.wait_for(lambda: has_steps(project / "runs"), "a step", PATIENCE_S)
        typed.type(CTRL_C)
        typed.until("Ctrl-C again to kill it", PATIENCE_S)
        time.sleep(REPEAT_S)  # signals that are closer to each other count as one
        typed.type(CTRL_BACKSLASH)
        typed.until("killing the run", PATIENCE_S)
        assert typed.end(PATIENCE_S) == 130
    assert "Traceback" not in typed.said
    assert info(project)["state"] == "cancelled"
    every_line_once(project)
    assert left(project) == []


def test_an_environment_that_was_up_stays_up(project: Path) -> None:
    lab(project, "up", "--backend", "local", "--gpus", "none")
    process = start(project, *RUN)
    trains(project / "runs")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    (row,) = json.loads(lab(project, "ls", "--json")[0])
    assert row["alive"] == 3


def test_ctrl_z_stops_and_fg_continues(project: Path) -> None:
    lab(project, "up", "--backend", "local", "--gpus", "none")
    env = environ(project) | {"PS1": "ready> "}
    with terminal(["bash", "--norc", "-i"], cwd=project, env=env) as shell:
        shell.until("ready> ", PATIENCE_S)
        shell.type(" ".join(command(*RUN)) + "\n")
        shell.wait_for(lambda: has_steps(project / "runs"), "a step", PATIENCE_S)
        shell.until("worker-1.*training", PATIENCE_S)
        shell.type(CTRL_Z)
        shell.until("Stopped", PATIENCE_S)
        shell.until("ready> ", PATIENCE_S)
        before = every_line_once_so_far(project)
        volume = next((project / "state").glob("local/*/runs"))
        there = volume / the_run(project).name / "tasks/worker-0.jsonl"
        wait_for(lambda: there.read_text().count("\n") > before + 50, "training that goes on")
        assert every_line_once_so_far(project) == before
        shell.type("fg\n")
        shell.until("worker-1.*training", PATIENCE_S)
        shell.wait_for(
            lambda: every_line_once_so_far(project) > before + 50, "what came meanwhile", PATIENCE_S
        )
        shell.type(CTRL_C)
        shell.until("was interrupted", PATIENCE_S)
        shell.type("exit\n")
        shell.end(PATIENCE_S)
    every_line_once(project)
    assert info(project)["state"] == "cancelled"


def every_line_once_so_far(project: Path) -> int:
    return (the_run(project) / "tasks/worker-0.jsonl").read_text().count("\n")


@pytest.mark.parametrize("after", ["the first word", "the boot", "the submission"])
def test_leftovers_of_a_killed_client_are_removed(project: Path, after: str) -> None:
    state = project / "state/local/e2e-endings"
    moments = {
        "the first word": lambda: any((project / "runs").glob("*/run.json")),
        "the boot": (state / "environment.json").exists,
        "the submission": lambda: any(state.glob("runs/requests/*.json")),
    }
    process = start(project, *RUN)
    wait_for(moments[after], after, PATIENCE_S)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    # It may have got further between the look and its end.
    submitted = any(state.glob("runs/requests/*.json"))
    assert submitted or after != "the submission"
    rows: list[dict[str, Any]] = []

    def settled() -> bool:
        """The client of a run that has just started may be between two steps of its work."""
        rows[:] = json.loads(lab(project, "runs", "--json")[0])
        return bool(rows[0]["note"]) or rows[0]["state"] == "lost"

    wait_for(settled, "what is said of the run", PATIENCE_S)
    (row,) = rows
    if submitted:
        assert row["note"] == f"no client follows it: `lab attach {row['run_id']}`"
    else:
        assert (row["state"], row["reason"]) == ("lost", "its client ended before the run started")
    start(project, "down", "--yes").communicate(timeout=PATIENCE_S)
    assert left(project) == []
    lab(project, "collect")
    (row,) = json.loads(lab(project, "runs", "--json")[0])
    assert (row["state"], row["note"]) == (
        "cancelled" if submitted else "lost",
        "",
    )


def test_two_runs_at_once(project: Path) -> None:
    both = [start(project, *RUN) for _ in range(2)]
    wait_for(lambda: any(each.poll() is not None for each in both), "one that is refused")
    (refused,) = [each for each in both if each.poll() is not None]
    (other,) = [each for each in both if each is not refused]
    _, err = refused.communicate(timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert "wait for it with `lab run --wait`" in err, err
    assert "internal" not in err
    trains(project / "runs")
    other.send_signal(signal.SIGINT)
    other.communicate(timeout=PATIENCE_S)
    assert other.returncode == 130
    assert left(project) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small") as disk:
        yield disk


def test_a_full_run_store_leaves_the_run_collectable(project: Path, small: Path) -> None:
    process = start(project, *RUN, "--runs-dir", str(small))
    trains(small)
    filler = fill(small)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, err
    last = err.splitlines()[-1]
    assert last.startswith("error: "), err
    assert "free some space" in last
    assert "is kept: not all files of run" in err
    filler.unlink()
    (run,) = small.iterdir()

    def is_over() -> bool:
        """Whether the cancelled run has ended; its tasks need some time."""
        lab(project, "collect", run.name, "--runs-dir", str(small))
        return json.loads((run / "run.json").read_text())["state"] != "training"

    wait_for(is_over, "its end", PATIENCE_S)
    for task in ("worker-0", "worker-1"):
        lines = (run / f"tasks/{task}.jsonl").read_text().splitlines()
        numbers = [json.loads(line)["seq"] for line in lines]
        assert numbers == list(range(len(numbers)))
    assert json.loads((run / "run.json").read_text())["state"] == "cancelled"
    assert (run / "files/model/weights").read_text() == "saved"
