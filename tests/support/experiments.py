"""A project whose programs are run by `lab run`, and what a run recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.protocol.records.echo import TensorFlowLines
from tests.support.commands import ROOT, lab

LOCAL = ("--backend", "local", "--gpus", "none")


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    path: Path
    summary: dict[str, Any]
    err: str = ""

    @property
    def results(self) -> dict[str, float]:
        """Its results by name; all must be as expected."""
        assert all(each["as_expected"] for each in self.summary["results"])
        return {each["name"]: each["value"] for each in self.summary["results"]}

    @property
    def states(self) -> dict[str, str]:
        return {task["task"]: task["state"] for task in self.summary["tasks"]}

    def records(self, task: str, *kinds: str) -> list[dict[str, Any]]:
        """The records of a task, of these kinds; of all kinds if none is given."""
        lines = map(json.loads, (self.path / f"tasks/{task}.jsonl").read_text().splitlines())
        return [each for each in lines if not kinds or each["kind"] in kinds]

    def messages(self, task: str) -> list[str]:
        return [each.get("message", "") for each in self.records(task, "event")]

    def losses(self, task: str) -> list[float]:
        return [each["loss"] for each in self.records(task, "step")]

    def log(self, task: str) -> list[str]:
        """The lines that its program printed, without TensorFlow's own."""
        lines = (self.path / f"logs/{task}.log").read_bytes().splitlines()
        of_tensorflow = TensorFlowLines()
        return [line.decode() for line in lines if not of_tensorflow.has(line)]


@dataclass(frozen=True)
class Project:
    """A project on one of the backends."""

    path: Path
    backend: str = "local"
    gpus: str = "none"
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, experiment: str, cluster: str, *flags: str, code: int = 0) -> Ran:
        arguments = ("--backend", self.backend, "--gpus", self.gpus, "--json")
        where = ("--cluster", f"clusters/{cluster}.yaml")
        call = ("run", experiment, *arguments, *where, *flags)
        out, err = lab(self.path, *call, code=code, **self.variables)
        summary: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert (summary["state"] == "succeeded") == (code == 0)
        return Ran(self.path / "runs" / summary["run_id"], summary, err)


def make_project(folder: Path, backend: str = "local") -> Project:
    for name in ("scripts", "clusters"):
        shutil.copytree(ROOT / name, folder / name)
    (folder / "data").mkdir()
    return Project(folder, backend)
