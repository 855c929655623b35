"""Runs whose worker or client is killed: they are resumed, or followed to their end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.site import Site
from tests.support.commands import lab, start

PATIENCE_S = 300.0
LONG, SHORT = 100_000, 1_500
FLAGS = ("--checkpoint_every", "1", "--record_every", "50", "--json")


@contextmanager
def training(
    site: Site, project: Path, flags: Sequence[str], claim: str, steps: int
) -> Iterator[subprocess.Popen[str]]:
    """The client of a run of so many steps that has saved a checkpoint."""
    words = ("run", "async", *flags, "--global_steps", str(steps), *FLAGS)
    client = start(project, *words, **site.access)
    try:
        site.wait(
            lambda: any(site.folder(claim).glob("*/*/checkpoints/*.index")),
            "there is no checkpoint",
            PATIENCE_S,
        )
        yield client
    finally:
        client.kill()
        client.communicate()
        lab(project, "down", "--yes", code=None, **site.access)


def last_line(out: str) -> Any:
    return json.loads(out.splitlines()[-1])


def test_a_run_whose_worker_was_killed_is_resumed(
    site: Site, project: Path, claim: str, image: str
) -> None:
    flags = site.flags(claim=claim, image=image)
    with training(site, project, flags, claim, LONG) as client:
        (pod,) = site.get("pods", selector="lab.task=worker-1")
        site.kill(pod["metadata"]["name"])
        out, err = client.communicate(timeout=PATIENCE_S)
    assert (client.returncode, last_line(out)["state"]) == (1, "lost"), err
    (first,) = (project / "runs").iterdir()
    reached = max(
        json.loads(line).get("global_step") or 0
        for line in (first / "tasks/worker-0.jsonl").read_text().splitlines()
    )
    words = ("run", "async", *flags, "--resume", first.name, *FLAGS)
    steps = ("--global_steps", str(reached + SHORT))
    out, _ = lab(project, *words, *steps, **site.access)
    summary = last_line(out)
    assert (summary["state"], summary["resumed_from"]) == ("succeeded", first.name)
    assert (summary["global_step"], summary["records_lost"]) == (reached + SHORT, 0)
    records = (project / "runs" / summary["run_id"] / "tasks/worker-0.jsonl").read_text()
    (resumed,) = [line for line in records.splitlines() if "resumes from" in line]
    start_step = json.loads(resumed)["global_step"]
    assert 0 < start_step <= reached + 2 * 50
    assert sum(task["local_step"] or 0 for task in summary["tasks"]) == reached + SHORT - start_step


def test_a_run_whose_client_was_killed_is_listed_and_followed(
    site: Site, project: Path, claim: str, image: str
) -> None:
    with training(site, project, site.flags(claim=claim, image=image), claim, SHORT) as client:
        client.kill()
        client.communicate(timeout=PATIENCE_S)
        (row,) = json.loads(lab(project, "ps", "--json", **site.access)[0])
        del row["cluster_sha256"], row["directory"]
        assert row == {"name": "laptop", "backend": "kubernetes", "tasks": 3, "alive": 3, "runs": 1}
        summary = last_line(lab(project, "attach", "--json", **site.access)[0])
        assert (summary["state"], summary["global_step"]) == ("succeeded", SHORT)
        assert summary["records_lost"] == 0
        lab(project, "down", **site.access)
    assert json.loads(lab(project, "ps", "--json", **site.access)[0]) == []
