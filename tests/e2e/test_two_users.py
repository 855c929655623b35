"""Two people on one host: side by side, one after the other, and on different GPUs."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.agents import wait_for
from tests.support.commands import end, lab, start
from tests.support.shown import assert_shows

CLUSTER = """\
version: 1
name: lab-e2e-{name}
nodes: {{tf1: {{}}, tf2: {{gpus: {gpus}}}}}
jobs: {{ps: {{on: [tf1]}}, worker: {{on: [tf2, tf2], gpus: 1}}}}
"""
WAITS = """\
import os, signal, time

if os.environ["LAB_TASK"] == "ps-0":
    signal.pause()
print("After  1 training steps (  2 global steps), loss on training batch is  0.388676."
      "  (  0.002 sec/batch)", flush=True)
while not os.path.exists(os.environ["LAB_DATA"] + "/go-on"):
    time.sleep(0.02)
"""
Project = Callable[..., Path]
PAGE = "docs/how-to/environments.md"


def here_is_anna(printed: str) -> str:
    """The output with the names of the page."""
    return printed.replace("lab-e2e-", "").replace(f" of {getpass.getuser()} ", " of root ")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """Makes projects, each of a user with its own state directory."""
    made: list[Path] = []

    def make(name: str, gpus: object = 2) -> Path:
        folder = tmp_path / name
        for each in ("scripts", "data"):
            (folder / each).mkdir(parents=True)
        (folder / "cluster.yaml").write_text(CLUSTER.format(name=name, gpus=gpus))
        (folder / "waits.py").write_text(WAITS)
        made.append(folder)
        return folder

    yield make
    for folder in made:
        lab(folder, "down", f"lab-e2e-{folder.name}", "--yes", "--discard", code=None)


def states(project: Path) -> set[str]:
    out, _ = lab(project, "ps", f"lab-e2e-{project.name}", "--json", code=None)
    try:
        return {row["state"] for row in json.loads(out) if row["task"] != "ps-0"}
    except ValueError:
        return set()  # it is not up yet


def runs(project: Path) -> list[str]:
    store = project / "runs"
    return sorted(path.name for path in store.iterdir()) if store.is_dir() else []


def go_on(project: Path) -> None:
    (project / "data/go-on").touch()


def test_one_after_the_other_in_one_environment(project: Project) -> None:
    here = project("anna")
    name = "lab-e2e-anna"
    run = ("run", "waits.py", "--backend", "local", "--gpus", "none")
    lab(here, "up", "--backend", "local", "--gpus", "none")
    first = start(here, *run)
    wait_for(lambda: states(here) == {"training"}, "the first trains")
    (one,) = runs(here)
    # Its client is killed: the run continues, and is found on the volume.
    first.kill()
    first.communicate()
    waits = f"waiting for run {one} in environment '{name}': position"
    second = start(here, *run)
    assert seen(second, waits).endswith("position 1 in the queue\n")
    third = start(here, *run, "--json")
    printed = seen(third, waits)
    assert printed.endswith("position 2 in the queue\n")
    second.send_signal(signal.SIGINT)
    assert end(second, 130)[1] == "error: interrupted\n"
    assert runs(here) == [one]
    printed += seen(third, waits)
    go_on(here)
    out, err = end(third)
    assert_shows(PAGE, "$ lab run async --epochs 1", here_is_anna(printed + err))
    summary = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    assert runs(here) == sorted({one, summary["run_id"]})
    # No other run was submitted: the interrupted one has left no request.
    lab(here, "runs")
    assert runs(here) == sorted({one, summary["run_id"]})
    lab(here, *run, "--runs-dir", "results")
    _, err = lab(here, "down")
    shown = "$ lab run async --runs-dir results --epochs 1"
    assert_shows(PAGE, shown, err.replace(str(here), "…"))
    assert not list((here / "state").rglob("*.queue.*"))


def seen(process: subprocess.Popen[str], message: str) -> str:
    """The first line of standard error that begins so."""
    return next(line for line in process.stderr if line.startswith(message))


def test_a_gpu_held_by_another_environment(project: Project) -> None:
    anna, ben, carl = project("anna", [4, 5]), project("ben", [5, 6]), project("carl", [6, 7])
    up = ("up", "--backend", "local", "--gpus", "index")
    lab(anna, *up)
    refused = "error: GPU 5 is held by environment 'lab-e2e-anna'"
    for arguments in (up, ("run", "waits.py", *up[1:])):
        _, err = lab(ben, *arguments, code=1)
        assert refused in err
        assert "or add --share" in err
        if arguments == up:
            assert_shows(PAGE, "$ lab up --gpus index", here_is_anna(err), figures=False)
    assert runs(ben) == []
    assert lab(ben, "ps", "--json")[0].count("lab-e2e-ben") == 0
    # Other GPUs, another environment: both run side by side.
    lab(carl, *up)
    go_on(anna)
    lab(anna, "run", "waits.py", *up[1:])
    lab(ben, *up, "--share")
    record = Path(os.environ["LAB_GPU_RECORD"])
    assert len(list(record.glob("lab-e2e-*.json"))) == 3
    for each in (ben, carl, anna):
        lab(each, "down")
    assert list(record.glob("lab-e2e-*.json")) == []
    go_on(ben)
    lab(ben, "run", "waits.py", *up[1:])
    assert list(record.glob("lab-e2e-*.json")) == []
