"""A host with fakes of Slurm's commands, on which the backend `slurm` boots."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.backends.names import AUTO
from lab.backends.options import Values
from lab.backends.slurm import environment as environments
from lab.backends.slurm.backend import SlurmBackend
from lab.backends.slurm.environment import SlurmEnvironment
from lab.cluster.config import parse_cluster
from lab.cluster.placement.plan import Plan
from lab.runner.planning import make_plan

CLUSTER = """\
version: 1
name: x
nodes: {tf1: {}, tf2: {gpus: 1}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2]}}
"""
WAITS = "7|PENDING|Resources\n8|RUNNING|None\n"
RUNS = "7|RUNNING|None\n8|RUNNING|None\n"
PARTITIONS = """\
PartitionName=lab AllowGroups=ALL Default=YES MaxNodes=UNLIMITED TotalCPUs=8 TotalNodes=2
PartitionName=big AllowGroups=ALL Default=NO MaxNodes=UNLIMITED TotalCPUs=32 TotalNodes=8
"""
COMMANDS = {
    "sbatch": """\
test -f "$FAKE/refuses" && cat "$FAKE/refuses" >&2 && exit 1
echo "$@" > "$FAKE/options"
env > "$FAKE/environ"
cp "$FAKE/first" "$FAKE/queue"
echo 7
""",
    "squeue": 'cat "$FAKE/queue"\n',
    "scancel": 'echo "$@" >> "$FAKE/cancelled"\ntest -f "$FAKE/deaf" || : > "$FAKE/queue"\n',
    "sinfo": "echo slurm-wlm 22.05.8\n",
    "scontrol": """\
test "$*" = "--all --oneliner show partition" && cat "$FAKE/partitions" && exit
echo "$@" > "$FAKE/requeued"
cp "$FAKE/waits" "$FAKE/queue"
""",
}


def nothing() -> None:
    """A pause in which nothing happens."""


def announce(*tasks: str) -> None:
    """The agents of these tasks start."""
    agents = environments.StateDir.of("x").runs / "agents"
    agents.mkdir(exist_ok=True)
    for task in tasks:
        about = {"address": f"{task}.host:1", "gpus": "none" if task == "ps-0" else "0,1"}
        (agents / f"{task}.json").write_text(json.dumps(about))


def both_start() -> None:
    announce("ps-0", "worker-0")


@dataclass
class Site:
    """A host with Slurm's commands, which read and write files, and a project on it.

    Attributes:
        fake: The directory of the commands and their files.
        root: The directory of the project.
        plan: Its plan.
        own: The options of the backend alone.
        pauses: What happens in each pause of the backend, of which each lasts for some seconds.
    """

    fake: Path
    root: Path
    plan: Plan
    pauses: list[Callable[[], None]] = field(default_factory=list)
    own: Values = field(default_factory=dict)

    def set(self, name: str, text: str) -> None:
        (self.fake / name).write_text(text)

    def queue(self, text: str) -> Callable[[], None]:
        """Later the queue has these jobs."""
        return lambda: self.set("queue", text)

    def read(self, name: str) -> str:
        path = self.fake / name
        return path.read_text() if path.exists() else ""

    def boot(self, *pauses: Callable[[], None]) -> object:
        """Boot while this happens."""
        self.pauses += pauses
        return SlurmBackend(self.own).up(self.plan, root=self.root)

    def up(self) -> SlurmEnvironment:
        """An environment whose agents have started."""
        environment = self.boot(both_start)
        assert isinstance(environment, SlurmEnvironment)
        return environment


def make_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A host on which two agents may start, with a clock of its own."""
    folder = tmp_path / "fake"
    folder.mkdir()
    for name, text in COMMANDS.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    plan = make_plan(parse_cluster(CLUSTER.encode(), "x.yaml"), AUTO, backend="slurm").plan
    made = Site(folder, tmp_path, plan)
    for name, text in (("queue", ""), ("first", RUNS), ("partitions", PARTITIONS)):
        made.set(name, text)
    now_s = float(int(time.monotonic()))  # sums of whole seconds are exact

    def sleep(seconds: float) -> None:
        nonlocal now_s
        assert seconds > 0
        now_s += 15.0
        made.pauses.pop(0)()

    clock = SimpleNamespace(monotonic=lambda: now_s, sleep=sleep, time=time.time)
    monkeypatch.setattr(environments, "time", clock)
    return made
