"""`python -m lab render && docker compose up` trains, on a real engine."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import lab, project_named

pytestmark = [pytest.mark.engine, pytest.mark.tensorflow]

NAME = "lab-e2e-autorun"
BATCHES = 550
PATIENCE_S = 300
DONE = "the environment waits for further runs"


@pytest.fixture
def project(image: str, tmp_path: Path) -> Iterator[Path]:
    with project_named(NAME, tmp_path) as folder:
        yield folder


@contextmanager
def up(project: Path) -> Iterator[Callable[[str], list[str]]]:
    """`docker compose up` in a terminal; yields a function that reads lines up to a text."""
    process = subprocess.Popen(
        ["docker", "compose", "--ansi", "never", "up"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")

    def until(text: str) -> list[str]:
        found: list[str] = []
        for line in lines:
            found.append(line.rstrip())
            if text in line:
                return found
        raise AssertionError("\n".join(found[-40:]))

    try:
        yield until
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE_S)


def ids() -> set[str]:
    command = ["docker", "ps", "--quiet", "--filter", f"label=lab.project={NAME}"]
    return set(
        subprocess.run(
            [*command, "--filter", "label=lab.task"], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def only_run(project: Path) -> dict[str, Any]:
    lab(project, "collect")
    (summary,) = (
        json.loads((path / "summary.json").read_text())
        for path in (project / "runs").iterdir()
        if not path.is_symlink()
    )
    return dict(summary)


def test_docker_compose_up_trains_once_and_waits_for_more(project: Path) -> None:
    lab(project, "render", "--gpus", "none", "--run", "async", "--", "--epochs=1", "--seed=7")
    lab(project, "render", "--gpus", "none", "--check")
    with up(project) as until:
        output = until(DONE)
        for worker in ("worker-0", "worker-1", "worker-2"):
            assert any(worker in line and "local step 550" in line for line in output)
            assert any(f"{worker}  succeeded" in line for line in output)
        assert any("python -m lab collect" in line for line in output)
        summary = only_run(project)
        assert (summary["state"], summary["global_step"]) == ("succeeded", 3 * BATCHES)
        (run_dir,) = (path for path in (project / "runs").iterdir() if not path.is_symlink())
        info = json.loads((run_dir / "run.json").read_text())
        assert (info["seed"], info["hyperparameters"]["epochs"]) == (7, 1)
        before = ids()
        lab(project, "run", "sync", "--epochs", "1", "--gpus", "none", "--runs-dir", "others")
        assert ids() == before
    with up(project) as until:
        output = until(DONE)
    assert any("has ended already; it is not trained again" in line for line in output)
    lab(project, "down", NAME)


def test_an_interrupted_run_resumes(project: Path) -> None:
    flags = ("--epochs=8", "--record_every=50", "--checkpoint_every=1")
    lab(project, "render", "--gpus", "none", "--run", "async", "--", *flags)
    with up(project) as until:
        until("global step 3")
        until("global step 4")
    with up(project) as until:
        output = until(DONE)
    assert any("was interrupted: " in line and "resumes from" in line for line in output)
    lab(project, "collect")
    run_dirs = sorted(path for path in (project / "runs").iterdir() if not path.is_symlink())
    infos = {path.name: json.loads((path / "run.json").read_text()) for path in run_dirs}
    (resumed,) = (name for name, info in infos.items() if info["spec"]["resumed_from"])
    summary = json.loads((project / "runs" / resumed / "summary.json").read_text())
    assert (summary["state"], summary["global_step"]) == ("succeeded", 8 * 3 * BATCHES)
    assert infos[resumed]["spec"]["resumed_from"] in infos


def test_it_recreates_no_task_of_an_environment_of_lab_up(project: Path) -> None:
    lab(project, "render", "--gpus", "none", "--run", "async", "--", "--epochs=1")
    lab(project, "up", "--gpus", "none")
    before = ids()
    assert json.loads(lab(project, "ls", "--json")[0])[0]["runs"] == 0
    with up(project) as until:
        until(DONE)
        assert ids() == before
        lab(project, "up", "--gpus", "none")  # it is up already
        assert ids() == before
    assert only_run(project)["state"] == "succeeded"
