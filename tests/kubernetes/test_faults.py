"""Faults of a cluster: each ends a run with its cause, nothing is lost, and nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubernetes.site import NODE, Site
from tests.support.commands import end, only_run, start, until

AWAY_S = 60.0

STEP = 'print("worker=0,epoch=0,global_step=%d, local_step=1, loss = 0.5" % {step}, flush=True)'
WAITS = f"""\
import signal
signal.signal(signal.SIGTERM, lambda *_: exit(0))
{STEP.format(step=1)}
signal.pause()
"""
# Kubernetes evicts a pod that has more in a volume in memory than its limit of 1 GiB.
FILLS = f"""\
import os, signal
{STEP.format(step=1)}
if os.environ["LAB_TASK"] == "worker-1":
    with open("/dev/shm/full", "wb") as file:
        for _ in range(1100):
            file.write(bytes(2**20))
signal.pause()
"""
STEPS = 1200
COUNTS = f"""\
import time
for step in range(1, {STEPS + 1}):
    {STEP.format(step="step")}
    time.sleep(0.1)
"""


@pytest.fixture
def runs(
    site: Site, project: Path, image: str, claim: str
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a run of a program with the backend kubernetes."""
    started: list[subprocess.Popen[str]] = []

    def run(text: str, **options: str) -> subprocess.Popen[str]:
        (project / "program.py").write_text(text)
        chosen = {"claim": claim, "image": image, **options}
        started.append(start(project, "run", "program.py", *site.flags(**chosen), **site.access))
        return started[-1]

    yield run
    for each in started:
        each.kill()
        each.wait()


def pod_of(site: Site, task: str) -> str:
    (pod,) = site.get("pods", selector=f"lab.task={task}")
    return str(pod["metadata"]["name"])


Runs = Callable[..., subprocess.Popen[str]]


def test_an_image_that_cannot_be_pulled_is_named(project: Path, runs: Runs) -> None:
    process = runs(WAITS, image="127.0.0.1:9/none:1")
    _, err = end(process, 1)
    assert "ImagePull" in err
    assert "127.0.0.1:9/none:1" in err
    assert [*(project / "runs").glob("*/run.json")] == []


def test_a_quota_that_is_reached_is_named(site: Site, project: Path, runs: Runs) -> None:
    site.apply("ResourceQuota", "few", spec={"hard": {"pods": "2"}})
    try:
        _, err = end(runs(WAITS), 1)
    finally:
        site.kubectl("delete", "resourcequota", "few")
    assert "exceeded quota: few" in err


def test_a_pod_that_is_killed_ends_the_run(site: Site, project: Path, runs: Runs) -> None:
    process = runs(WAITS)
    until(process, "worker-1: training")
    site.kill(pod_of(site, "worker-1"))
    _, err = end(process, 1)
    assert "exit code 137" in err
    assert "worker-1 lost: its agent has sent no heartbeat" in err
    assert only_run(project)["state"] == "lost"


def test_a_pod_that_is_evicted_ends_the_run(site: Site, project: Path, runs: Runs) -> None:
    _, err = end(runs(FILLS), 1)
    assert "Evicted" in err
    assert 'exceeds the limit "1Gi"' in err
    # An agent that is stopped in the two seconds before it is killed records its end.
    assert only_run(project)["state"] in {"lost", "cancelled"}


def test_a_drained_node_ends_the_run(site: Site, project: Path, runs: Runs) -> None:
    process = runs(WAITS)
    until(process, "worker-1: training")
    try:
        site.kubectl("drain", NODE, "--force", "--delete-emptydir-data")
    finally:
        site.kubectl("uncordon", NODE)
    _, err = end(process, 1)
    assert "the agent was stopped (SIGTERM)" in err
    assert "its node is cordoned, as by `kubectl drain`" in err
    assert only_run(project)["state"] == "cancelled"


def test_an_api_server_that_is_away_for_a_minute_loses_nothing(
    site: Site, project: Path, runs: Runs
) -> None:
    process = runs(COUNTS)
    until(process, "worker-1: training")
    site.end("kube-apiserver", signal.SIGKILL)
    time.sleep(AWAY_S)
    site.start("kube-apiserver")
    end(process)
    run = only_run(project)
    assert run["state"] == "succeeded"
    (records,) = (project / "runs").glob("*/tasks/worker-1.jsonl")
    steps = [json.loads(line)["global_step"] for line in records.read_text().splitlines()]
    assert steps == [*range(1, STEPS + 1)]
