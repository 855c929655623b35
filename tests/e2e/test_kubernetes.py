"""Faults during a run on Kubernetes, with a small API server whose pods are processes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.protocol.volume.files import REFUSED_S
from tests.support import kube
from tests.support.agents import PATIENCE_S, wait_for
from tests.support.commands import start
from tests.support.kube import Cluster, a_cluster

CLUSTER = """\
version: 1
name: lab-e2e-kubernetes
nodes: {tf1: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf1, tf1]}}
"""
LINES = 300
PROGRAM = f"""\
import os, signal, time

if os.environ["LAB_TASK"] == "ps-0":
    signal.pause()
for step in range({LINES}):
    while step == {LINES // 2} and not os.path.exists("GO_ON"):
        time.sleep(0.02)
    print(f"step={{step + 1}} loss=0.5")
    print("line", step + 1, flush=True)
    time.sleep(0.02)
"""
TASKS = ("worker-0", "worker-1")
ENDS = {"logs": "log", "tasks": "jsonl"}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "program.py").write_text(PROGRAM.replace("GO_ON", str(tmp_path / "go-on")))
    with a_cluster(tmp_path / "cluster") as found:
        monkeypatch.setenv("KUBECONFIG", str(found.folder / "config"))
        yield found


class Run:
    """A run that a client follows."""

    def __init__(self, project: Path, *flags: str) -> None:
        words = ["run", "program.py", "--backend", "kubernetes", "-o", "flavour=plain", "--json"]
        words += ["--record", r"step=(?P<local_step>\d+) loss=(?P<loss>\S+)", *flags]
        self.client = start(project, *words)
        wait_for(lambda: [*project.glob("runs/*/logs/worker-1.log")], "a line of worker-1")
        (self.folder,) = project.glob("runs/*-program-*")

    def end(self) -> dict[str, Any]:
        """The summary of the run; `messages` has what the client printed."""
        out, self.messages = self.client.communicate(timeout=PATIENCE_S)
        assert out, self.messages
        return json.loads(out.splitlines()[-1])

    def lines(self, task: str) -> list[int]:
        log = (self.folder / "logs" / f"{task}.log").read_text().splitlines()
        return [int(line.split()[1]) for line in log if line.startswith("line ")]

    def steps(self, task: str) -> list[int]:
        records = (self.folder / "tasks" / f"{task}.jsonl").read_text().splitlines()
        return [json.loads(line)["local_step"] for line in records]


@pytest.fixture
def vain(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the requests to a server that is away, without those that watch the pods."""
    times: list[float] = []
    serve = kube._Handler._serve

    def noted(handler: kube._Handler) -> None:
        if not cluster.answers and "watch=" not in handler.path:
            times.append(time.monotonic())
        serve(handler)

    monkeypatch.setattr(kube._Handler, "_serve", noted)
    return times


def test_nothing_is_lost_or_twice_while_the_server_is_away(
    cluster: Cluster, vain: list[float], tmp_path: Path
) -> None:
    def all_is_written() -> bool:
        logs = [*(cluster.folder / "volume").rglob("logs/worker-*.log")]
        return [each.read_text().count("line ") for each in logs] == [LINES] * len(TASKS)

    def waits_on() -> bool:
        """Whether the client waits longer for the server than for a faulty run volume.

        Its time begins before its second vain request, and the last but one failed for sure.
        """
        return len(vain) > 2 and vain[-2] - vain[1] > REFUSED_S

    run = Run(tmp_path)
    cluster.go_away()
    (tmp_path / "go-on").touch()
    wait_for(all_is_written, "the end of the programs")
    wait_for(lambda: waits_on() or run.client.poll() is not None, "the client asks again")
    assert len(run.lines("worker-1")) < LINES
    files = [f"{folder}/{task}.{end}" for task in TASKS for folder, end in ENDS.items()]
    sizes = {each: (run.folder / each).stat().st_size for each in files}
    cluster.answers = True
    assert run.end()["state"] == "succeeded"
    for task in TASKS:
        assert run.lines(task) == [*range(1, LINES + 1)]
        assert run.steps(task) == [*range(1, LINES + 1)]
    # The client does not ask again for what it has, although its collector would drop it.
    offsets = json.loads([each for each in cluster.commands if "ship" in each][-1][5])
    assert {each: offsets[each] for each in files} == sizes
    assert cluster.left() == []


EVICTED = "EvictionByEvictionAPI: Eviction API: evicting"
DRAINED = "its node is cordoned, as by `kubectl drain`"


@pytest.mark.parametrize(
    ("cordoned", "cause"),
    [(None, EVICTED), (False, EVICTED), (True, f"{EVICTED}: {DRAINED}")],
    ids=["no-right", "evicted", "drained"],
)
def test_a_pod_that_is_evicted_ends_the_run_with_the_cause(
    cluster: Cluster, tmp_path: Path, cordoned: bool | None, cause: str
) -> None:
    cluster.cordoned = cordoned
    run = Run(tmp_path)
    cluster.evict("worker-1")
    summary = run.end()
    assert summary["state"] == "cancelled", summary
    status = json.loads((run.folder / "status" / "worker-1.json").read_text())
    assert (status["state"], status["reason"]) == ("cancelled", "the agent was stopped (SIGTERM)")
    assert f"worker-1: Terminating on node-1: {cause}\n" in run.messages
    assert cluster.left() == []


def test_a_pod_that_is_killed_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    run = Run(tmp_path)
    cluster.kill("worker-1")
    summary = run.end()
    assert summary["state"] == "lost", summary
    (worker,) = [each for each in summary["tasks"] if each["task"] == "worker-1"]
    assert worker["state"] == "lost"
    assert "worker-1: Failed on node-1: OOMKilled: exit code 137" in run.messages
    assert cluster.left() == []
