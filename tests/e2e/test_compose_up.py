"""`python -m lab render && docker compose up` trains in a project of `lab init`."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.backends.compose.backend import ComposeBackend
from lab.base.image_digest import digest
from lab.runner.store.directory import all_runs
from lab.runner.store.run_info import RunInfo
from tests.support.commands import lab
from tests.support.docker import docker, left_behind

pytestmark = [pytest.mark.engine, pytest.mark.tensorflow]

NAME = "lab-e2e-autorun"
BATCHES = 550
PATIENCE_S = 300
DONE = "the environment is waiting for more runs"


@pytest.fixture
def project(image: str, tmp_path: Path) -> Iterator[Path]:
    project = tmp_path / NAME  # the directory gives the project its name
    project.mkdir()
    lab(project, "init", "--gpus", "none")
    yield project
    if (left := ComposeBackend().find_any(NAME)) is not None:
        left.down()


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
    filters = (f"label=lab.project={NAME}", "label=lab.task")
    return set(docker("ps", "--quiet", *(f"--filter={each}" for each in filters)).split())


def collected(project: Path, *runs: str) -> dict[str, RunInfo]:
    """The runs, after `lab attach` has collected these."""
    for run in runs:
        lab(project, "attach", run, code=None)
    return {run.run_id: run.read() for run in all_runs(project / "runs")}


def test_docker_compose_up_trains_once_in_an_environment_of_lab_up(project: Path) -> None:
    lab(project, "render", "--gpus", "none", "--run", "async", "--", "--epochs=1", "--seed=7")
    lab(project, "render", "--gpus", "none", "--check")
    lab(project, "up", "--gpus", "none")
    before = ids()
    assert json.loads(lab(project, "ps", "--json")[0])[0]["runs"] == 0
    with up(project) as until:
        output = until(DONE)
        for worker in ("worker-0", "worker-1", "worker-2"):
            assert any(worker in line and "local step 550" in line for line in output)
            assert any(f"{worker}: succeeded" in line for line in output)
        assert any("python -m lab attach" in line for line in output)
        ((run_id, info),) = collected(project, "last").items()
        assert (info.seed, info.hyperparameters["epochs"]) == (7, 1)
        run_dir = project / "runs" / run_id
        summary = json.loads((run_dir / "summary.json").read_text())
        assert (summary["state"], summary["global_step"]) == ("succeeded", 3 * BATCHES)
        assert (summary["records_lost"], summary["updates_conserved"]) == (0, True)
        assert "lab.project: lab-e2e-autorun" in (run_dir / "docker-compose.yml").read_text()
        assert list((run_dir / "model").iterdir())

        out, _ = lab(project, "run", "sync", "--epochs", "1", "--gpus", "none", "--json")
        summary = json.loads(out.splitlines()[-1])
        assert (summary["backend"], summary["state"]) == ("compose", "succeeded")
        assert (summary["global_step"], summary["records_lost"]) == (BATCHES, 0)
        lab(project, "up", "--gpus", "none")  # it is up already
        assert ids() == before
    with up(project) as until:
        output = until(DONE)
    assert any("has ended already; it is not trained again" in line for line in output)
    lab(project, "down", NAME)
    assert left_behind(NAME) == []


def test_an_interrupted_run_resumes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_IMAGE", "lab:of-init")  # compose builds it from the project
    flags = ("--epochs=6", "--record_every=50", "--checkpoint_every=1")
    lab(project, "render", "--gpus", "none", "--run", "async", "--", *flags)
    with up(project) as until:
        until("global step 3")
        until("global step 4")
    with up(project) as until:
        output = until(DONE)
    assert any("was interrupted: " in line and "resumes from" in line for line in output)
    runs = collected(project, "last~1", "last")
    (resumed,) = (name for name, info in runs.items() if info.spec.resumed_from)
    summary = json.loads((project / "runs" / resumed / "summary.json").read_text())
    assert (summary["state"], summary["global_step"]) == ("succeeded", 6 * 3 * BATCHES)
    assert runs[resumed].spec.resumed_from in runs
    command = ("python", "-m", "lab.base.image_digest")
    assert docker("run", "--rm", "lab:of-init", *command).strip() == digest()
    docker("rmi", "--force", "lab:of-init")
