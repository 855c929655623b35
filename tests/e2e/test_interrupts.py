"""Runs by processes, and their ends: by keys, by signals, by a killed client, by a full disk.

The programs import no TensorFlow, so that it is quick.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import PATIENCE_S, processes_with, wait_for
from tests.support.commands import command, end, environ, lab, start
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
needs: nothing
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


def ours(project: Path) -> list[int]:
    return processes_with(f"LAB_STATE={project / 'state'}\0")


def left(project: Path) -> list[object]:
    return [*ours(project), *(project / "state").glob("local/*/")]


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
    return json.loads((the_run(project) / "run.json").read_text())


def has_steps(store: Path) -> bool:
    def stepped(task: str) -> bool:
        return any(b'"step"' in path.read_bytes() for path in store.glob(f"*/tasks/{task}.jsonl"))

    return stepped("worker-0") and stepped("worker-1")


def trains(store: Path) -> None:
    wait_for(lambda: has_steps(store), "a step", PATIENCE_S)


def every_line_once(project: Path) -> int:
    """See that no record is missing or doubled; the number of the first worker's."""
    for task in ("worker-1", "worker-0"):
        lines = (the_run(project) / f"tasks/{task}.jsonl").read_text().splitlines()
        numbers = [json.loads(line)["seq"] for line in lines]
        assert numbers == list(range(len(numbers)))
    return len(numbers)


def test_a_closed_reader_does_not_change_the_outcome(project: Path) -> None:
    program(project, SAVES.replace("10**6", "100"))
    process = subprocess.Popen(
        command(*RUN),
        cwd=project,
        env=environ(project),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    process.stdout.read(1)
    process.stdout.close()
    process.wait(PATIENCE_S)
    assert info(project)["state"] == "succeeded"
    assert left(project) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_the_first_signal_saves_collects_and_leaves_nothing(
    project: Path, number: signal.Signals
) -> None:
    process = start(project, *RUN)
    trains(project / "runs")
    process.send_signal(number)
    out, err = end(process, 130)
    assert err.splitlines()[-1].startswith("error: run ")
    assert "cancelled" in out
    assert (info(project)["state"], info(project)["reason"]) == ("cancelled", "interrupted")
    assert (the_run(project) / "files/model/weights").read_text() == "saved"
    assert every_line_once(project) > 1
    assert left(project) == []
    assert not list(project.glob("core*"))


def test_the_terminal_is_closed(project: Path) -> None:
    with terminal(command(*RUN), cwd=project, env=environ(project)) as typed:
        typed.wait_for(lambda: has_steps(project / "runs"), "a step", PATIENCE_S)
    assert typed.code == 130
    assert info(project)["state"] == "cancelled"
    assert left(project) == []


def test_the_second_ctrl_c_kills(project: Path) -> None:
    program(project, DEAF)
    with terminal(command(*RUN), cwd=project, env=environ(project)) as typed:
        typed.wait_for(lambda: has_steps(project / "runs"), "a step", PATIENCE_S)
        typed.type(CTRL_C)
        typed.until("Ctrl-C again to kill it", PATIENCE_S)
        typed.press_until(CTRL_BACKSLASH, "killing the run", PATIENCE_S)
        assert typed.end(PATIENCE_S) == 130
    assert "Traceback" not in typed.said
    assert info(project)["state"] == "cancelled"
    every_line_once(project)
    assert left(project) == []


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
    (row,) = json.loads(lab(project, "ps", "--json")[0])
    assert row["alive"] == 3, "an environment that was up stays up"


def every_line_once_so_far(project: Path) -> int:
    return (the_run(project) / "tasks/worker-0.jsonl").read_text().count("\n")


@pytest.mark.parametrize("after", ["the first message", "the submission"])
def test_leftovers_of_a_killed_client_are_removed(project: Path, after: str) -> None:
    state = project / "state/local/e2e-endings"
    moments = {
        "the first message": lambda: any((project / "runs").glob("*/run.json")),
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
    lab(project, "down", "--yes", code=None)
    assert left(project) == []
    (row,) = json.loads(lab(project, "runs", "--json")[0])
    assert (row["state"], row["note"]) == ("cancelled" if submitted else "lost", "")


def test_runs_of_an_ended_environment_are_collected_first(project: Path) -> None:
    lab(project, "up", "--backend", "local", "--gpus", "none")
    process = start(project, *RUN)
    trains(project / "runs")
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    record = json.loads((project / "state/local/e2e-endings/environment.json").read_text())
    os.kill(record["process"]["pid"], signal.SIGKILL)
    wait_for(lambda: ours(project) == [], "the end of all processes", PATIENCE_S)
    first = the_run(project)
    program(project, "")
    lab(project, *RUN)
    told = json.loads((first / "run.json").read_text())
    assert (told["state"], told["reason"]) == ("lost", "its environment no longer runs")
    lines = (first / "tasks/worker-0.jsonl").read_text().splitlines()
    assert [json.loads(line)["seq"] for line in lines] == list(range(len(lines)))
    assert left(project) == []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "small") as disk:
        yield disk


def test_a_full_run_store_leaves_the_run_collectable(project: Path, small: Path) -> None:
    process = start(project, *RUN, "--runs-dir", str(small))
    trains(small)
    filler = fill(small)
    _, err = end(process, 1)
    last = err.splitlines()[-1]
    assert last.startswith("error: "), err
    assert "free some space" in last
    assert "is kept: not all files of run" in err
    filler.unlink()
    (run,) = small.iterdir()

    def is_over() -> bool:
        lab(project, "attach", run.name, "--runs-dir", str(small), code=None)
        return json.loads((run / "run.json").read_text())["state"] != "training"

    wait_for(is_over, "its end", PATIENCE_S)
    for task in ("worker-0", "worker-1"):
        lines = (run / f"tasks/{task}.jsonl").read_text().splitlines()
        numbers = [json.loads(line)["seq"] for line in lines]
        assert numbers == list(range(len(numbers)))
    assert json.loads((run / "run.json").read_text())["state"] == "cancelled"
    assert (run / "files/model/weights").read_text() == "saved"
