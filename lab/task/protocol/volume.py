"""The run volume: the paths of its files, and the pieces in which they are collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Volume:
    """Where everything lies on the run volume."""

    root: Path
    requests: Path = field(init=False)
    agents: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", self.root / "requests")
        object.__setattr__(self, "agents", self.root / "agents")

    def incoming(self, run_id: str) -> Path:
        """Where a program of one's own arrives, before its run is there."""
        return self.root / "incoming" / run_id

    def program(self, run_id: str) -> Path:
        """Where it lies during the run."""
        return self.run(run_id) / "program"

    def files(self, run_id: str) -> Path:
        """The working directory of a run's programs."""
        return self.run(run_id) / "files"

    def agent(self, task: str) -> Path:
        """The presence of one task's agent."""
        return self.agents / f"{task}.json"

    def life(self, task: str) -> Path:
        """The file that one task's agent has locked as long as it lives."""
        return self.agents / f"{task}.lock"

    def request(self, run_id: str) -> Path:
        """The file of one request."""
        return self.requests / f"{run_id}.json"

    def collected(self, run_id: str) -> Path:
        """The file that names where a run was collected."""
        return self.requests / f"{run_id}.collected"

    def run(self, run_id: str) -> Path:
        """The directory of one run."""
        return self.root / run_id

    def status(self, run_id: str, task: str) -> Path:
        """The state of one task."""
        return self.run(run_id) / "status" / f"{task}.json"

    def records(self, run_id: str, task: str) -> Path:
        """The records of one task."""
        return self.run(run_id) / "tasks" / f"{task}.jsonl"

    def log(self, run_id: str, task: str) -> Path:
        """The other lines of one task."""
        return self.run(run_id) / "logs" / f"{task}.log"

    def cancel(self, run_id: str) -> Path:
        """The file whose presence asks every agent to end the run."""
        return self.run(run_id) / "cancel.json"

    def kill(self, run_id: str) -> Path:
        """The file whose presence asks every agent to end the run at once."""
        return self.run(run_id) / "kill.json"

    def start(self, run_id: str, task: str) -> Path:
        """The file whose presence tells a task's program to train."""
        return self.run(run_id) / "start" / task

    def faults(self, run_id: str) -> Path:
        """Where faults are told that were asked for during the run."""
        return self.run(run_id) / "faults"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a run that comes home.

    Attributes:
        path: Relative to the run's directory, `logs/worker-0.log`.
        offset: Where `data` belongs in the file, in bytes; None: it replaces the whole file.
        data: The bytes.
        fault: Why the file is not collected; then there are no bytes. "": it is collected.
        kept: Whether a file with a fault holds data that stays on the run volume.
    """

    path: str
    offset: int | None
    data: bytes
    fault: str = ""
    kept: bool = False
