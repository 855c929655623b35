"""Runs whose worker or client is killed: they are resumed, or followed to their end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.site import Site
from tests.support.commands import lab, start

PATIENCE_S = 300.0
STEPS = 10_000
FLAGS = ("--global_steps", str(STEPS), "--checkpoint_every", "1", "--record_every", "50", "--json")


@pytest.fixture
def training(site: Site, project: Path, claim: str, image: str) -> Iterator[subprocess.Popen[str]]:
    """The client of a run that has saved a checkpoint."""
    flags = site.flags(claim=claim, image=image)
    client = start(project, "run", "async", *flags, *FLAGS, **site.access)
    saved = lambda: any(site.folder(claim).glob("*/*/checkpoints/*.index"))  # noqa: E731
    site.wait(saved, "there is no checkpoint", PATIENCE_S)
    yield client
    client.kill()
    client.communicate()
    lab(project, "down", "--yes", code=None, **site.access)


def last_line(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_a_run_whose_worker_was_killed_is_resumed(
    site: Site, project: Path, claim: str, image: str, training: subprocess.Popen[str]
) -> None:
    (pod,) = site.get("pods", selector="lab.task=worker-1")
    site.kill(pod["metadata"]["name"])
    out, err = training.communicate(timeout=PATIENCE_S)
    assert (training.returncode, last_line(out)["state"]) == (1, "lost"), err
    (first,) = (project / "runs").iterdir()
    reached = max(
        json.loads(line).get("global_step") or 0
        for line in (first / "tasks/worker-0.jsonl").read_text().splitlines()
    )
    out, _ = lab(
        project,
        *("run", "async", *site.flags(claim=claim, image=image), "--resume", first.name, *FLAGS),
        **site.access,
    )
    summary = last_line(out)
    assert (summary["state"], summary["resumed_from"]) == ("succeeded", first.name)
    assert (summary["global_step"], summary["records_lost"]) == (STEPS, 0)
    records = (project / "runs" / summary["run_id"] / "tasks/worker-0.jsonl").read_text()
    (resumed,) = [line for line in records.splitlines() if "resumes from" in line]
    start_step = json.loads(resumed)["global_step"]
    assert 0 < start_step <= reached + 2 * 50
    assert sum(task["local_step"] or 0 for task in summary["tasks"]) == STEPS - start_step


def test_a_run_whose_client_was_killed_is_listed_and_followed(
    site: Site, project: Path, training: subprocess.Popen[str]
) -> None:
    training.kill()
    training.communicate(timeout=PATIENCE_S)
    (row,) = json.loads(lab(project, "ls", "--json", **site.access)[0])
    del row["cluster_sha256"]
    assert row == {"name": "laptop", "backend": "kubernetes", "tasks": 3, "alive": 3, "runs": 1}
    summary = last_line(lab(project, "attach", "--json", **site.access)[0])
    assert (summary["state"], summary["global_step"]) == ("succeeded", STEPS)
    assert summary["records_lost"] == 0
    lab(project, "down", **site.access)
    assert json.loads(lab(project, "ls", "--json", **site.access)[0]) == []
