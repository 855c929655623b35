"""The plain flavour of `lab render --target kubernetes`, applied as it is, trains."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from lab.protocol.volume.layout import Volume
from tests.kubernetes.site import Site, render_flags
from tests.support.commands import lab

PATIENCE_S = 300.0
OURS = "lab.project=laptop"
WORKERS = ("worker-0", "worker-1")


@pytest.fixture
def rendered(image: str, claim: str, own_project: Path) -> Path:
    """The file for one epoch of the experiment async, with the shipped config."""
    file = own_project / "cluster.yml"
    lab(
        own_project,
        *("render", "--target", "kubernetes", "--output", str(file)),
        *render_flags(claim=claim, image=image),
        *("--run", "async", "--", "--epochs=1"),
    )
    return file


def test_the_rendered_file_trains_and_every_pod_ends(
    site: Site, rendered: Path, claim: str
) -> None:
    site.kubectl("apply", "-f", str(rendered))
    names = [f"lab-laptop-{task}" for task in ("ps-0", "run", *WORKERS)]
    assert sorted(each["metadata"]["name"] for each in site.get("jobs", selector=OURS)) == names
    ends = {name: site.ended(name, PATIENCE_S) for name in names}
    output = site.kubectl("logs", "job/lab-laptop-run")
    assert ends == dict.fromkeys(names, "Complete"), output
    assert "worker-1: succeeded, local step 550," in output
    volume = Volume(site.folder(claim) / "laptop")
    (request,) = volume.requests.glob("*.json")
    for task in ("ps-0", *WORKERS):
        status = json.loads(volume.status(request.stem, task).read_text())
        assert status["state"] == "succeeded"
        records = volume.records(request.stem, task).read_bytes()
        assert hashlib.sha256(records).hexdigest() == status["records_sha256"]
        assert status["records_lost"] == 0
    site.kubectl("delete", "-f", str(rendered))
    site.wait(lambda: not site.get("pods", selector=OURS), "pods are left", PATIENCE_S)
