"""The paths of the files on the run volume, and the chunks in which they are collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Volume:
    """The paths of all files on the run volume."""

    root: Path
    requests: Path = field(init=False)
    agents: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", self.root / "requests")
        object.__setattr__(self, "agents", self.root / "agents")

    def incoming(self, run_id: str) -> Path:
        """Return the directory for the uploads of a run before its request."""
        return self.root / "incoming" / run_id

    def program(self, run_id: str) -> Path:
        """Return the directory of the user's own program during the run."""
        return self.run(run_id) / "program"

    def files(self, run_id: str) -> Path:
        """Return the working directory of a run's programs."""
        return self.run(run_id) / "files"

    def agent(self, task: str) -> Path:
        """Return the heartbeat file of one task's agent."""
        return self.agents / f"{task}.json"

    def agent_lock(self, task: str) -> Path:
        """Return the file that one task's agent locks while it runs."""
        return self.agents / f"{task}.lock"

    def request(self, run_id: str) -> Path:
        """Return the file of one request."""
        return self.requests / f"{run_id}.json"

    def collected(self, run_id: str) -> Path:
        """Return the file with the run store into which a run was collected."""
        return self.requests / f"{run_id}.collected"

    def run(self, run_id: str) -> Path:
        """Return the directory of one run."""
        return self.root / run_id

    def status(self, run_id: str, task: str) -> Path:
        """Return the file of one task's state."""
        return self.run(run_id) / "status" / f"{task}.json"

    def records(self, run_id: str, task: str) -> Path:
        """Return the file of one task's records."""
        return self.run(run_id) / "tasks" / f"{task}.jsonl"

    def log(self, run_id: str, task: str) -> Path:
        """Return the file of one task's other output."""
        return self.run(run_id) / "logs" / f"{task}.log"

    def cancel(self, run_id: str) -> Path:
        """Return the file that requests every agent to end the run."""
        return self.run(run_id) / "cancel.json"

    def kill(self, run_id: str) -> Path:
        """Return the file that requests every agent to end the run at once."""
        return self.run(run_id) / "kill.json"

    def start(self, run_id: str, task: str) -> Path:
        """Return the file that signals a task's program to train."""
        return self.run(run_id) / "start" / task

    def rendezvous(self, run_id: str) -> Path:
        """Return the file with the attempt and the port of Horovod's rendezvous; not collected."""
        return self.run(run_id) / "start" / ".rendezvous"

    def faults(self, run_id: str) -> Path:
        """Return the directory of the faults that the user requested during the run."""
        return self.run(run_id) / "faults"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a run that the client collects.

    Attributes:
        path: Relative to the run's directory, `logs/worker-0.log`.
        offset: Position of `data` in the file, in bytes; None: `data` replaces the whole file.
        data: The bytes.
        fault: Why the file is not collected; then there are no bytes. "" if it is collected.
        kept: Whether a file with a fault has data that stays on the run volume.
    """

    path: str
    offset: int | None
    data: bytes
    fault: str = ""
    kept: bool = False
