"""`lab run` with the backend kubernetes trains, collects everything, and leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kubernetes.site import Site
from tests.support.commands import lab
from tests.support.shown import assert_shows


def test_lab_run_trains_in_pods_and_leaves_nothing(
    site: Site, project: Path, image: str, claim: str
) -> None:
    flags = site.flags(claim=claim, image=image)
    out, _ = lab(
        project,
        *("run", "async", *flags, "--epochs=1", "--json"),
        **site.access,
    )
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state"], summary["backend"]) == ("succeeded", "kubernetes")
    assert summary["records_lost"] == 0
    (run,) = (project / "runs").iterdir()
    for worker in ("worker-0", "worker-1"):
        records = (run / f"tasks/{worker}.jsonl").read_text().splitlines()
        assert json.loads(records[-1])["local_step"] == 550


def test_the_steps_of_the_page_on_kubernetes(
    site: Site, project: Path, image: str, claim: str
) -> None:
    """`up`, `ps`, `run` and `down`; `-s` shows what they print."""
    options = ("--backend", "kubernetes", "--gpus", "none", "-o", "flavour=plain")
    steps = (
        ("up", *options, "-o", f"image={image}", "-o", f"claim={claim}"),
        ("ps", "laptop"),
        ("run", "async", "--backend", "kubernetes", "--gpus", "none", "--epochs", "1"),
        ("down",),
    )
    printed = ""
    for words in steps:
        out, err = lab(project, *words, **site.access)
        printed += f"$ lab {' '.join(words)}\n{err}{out}\n"
    print(printed)
    assert_shows("docs/how-to/kubernetes.md", "$ lab up --backend", printed, figures=False)
