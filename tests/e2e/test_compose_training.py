"""The real programs on real containers, through the commands that a user types."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import call, lab, project_named

pytestmark = [pytest.mark.engine, pytest.mark.tensorflow]

NAME = "lab-e2e-training"
BATCHES = 550
PATIENCE_S = 300


@pytest.fixture(scope="module")
def project(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with project_named(NAME, tmp_path_factory.mktemp("project")) as folder:
        yield folder


def labelled() -> list[str]:
    """Everything of this project that the engine has."""
    found: list[str] = []
    for what in (["ps", "--all"], ["network", "ls"], ["volume", "ls"]):
        command = ["docker", *what, "--quiet", "--filter", f"label=lab.project={NAME}"]
        found += subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return found


def run(project: Path, experiment: str, *flags: str) -> dict[str, Any]:
    output, _ = lab(project, "run", experiment, "--seed", "7", "--json", *flags)
    summary: dict[str, Any] = json.loads(output.splitlines()[-1])
    assert summary["backend"] == "compose"
    assert summary["state"] == "succeeded"
    assert summary["records_lost"] == 0
    assert summary["updates_conserved"]
    return summary


def workers(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [task for task in summary["tasks"] if task["job_name"] == "worker"]


def test_render_up_run_down(project: Path) -> None:
    lab(project, "render", "--gpus", "none")
    call(project, "docker", "compose", "up", "--detach", "--wait", LAB_RUN="")
    summary = run(project, "async", "--epochs", "1", "--gpus", "none")
    assert summary["global_step"] == 3 * BATCHES
    assert [task["local_step"] for task in workers(summary)] == [BATCHES] * 3
    assert all(task["accuracy"] > 0.4 for task in workers(summary))
    run_dir = project / "runs" / summary["run_id"]
    rendered = (project / "compose.yaml").read_text()
    assert (run_dir / "docker-compose.yml").read_text() == rendered
    assert list((run_dir / "model").iterdir())
    # An environment that was up before the run stays up.
    assert f'"name": "{NAME}"' in lab(project, "ls", "--json")[0]
    lab(project, "down", NAME)
    assert labelled() == []


def test_a_run_boots_and_removes_its_own(project: Path) -> None:
    flags = ("--epochs", "1", "--backend", "compose", "--gpus", "none")
    summary = run(project, "sync", *flags)
    assert summary["global_step"] == BATCHES
    assert labelled() == []


def test_without_the_client_and_collected_later(project: Path) -> None:
    lab(project, "render", "--gpus", "none")
    variables = {"LAB_EXPERIMENT": "async", "LAB_FLAGS": "--epochs 1 --seed 7"}
    call(project, "docker", "compose", "up", "--exit-code-from", "ps-0", **variables)
    lab(project, "collect", "--runs-dir", "later")
    (run_dir,) = (path for path in (project / "later").iterdir() if not path.is_symlink())
    summary = json.loads((run_dir / "summary.json").read_text())
    assert (summary["state"], summary["global_step"]) == ("succeeded", 3 * BATCHES)
    lab(project, "down", NAME)
    assert labelled() == []
