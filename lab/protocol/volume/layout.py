"""The names, limits and paths of the run volume, and the chunks in which it is collected."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,80}")
TASK = re.compile(r"[a-z]+-(0|[1-9][0-9]{0,4})")

ClusterSpec = Mapping[str, list[str]]
"""TensorFlow's cluster spec: job to list of `host:port`."""

STALL_S: Final[float] = 300
"""Default time limit without a new global step or sign of life, in seconds."""

READY_S: Final[float] = 120
"""The least time limit for every program to be ready, in seconds."""

LOST_CONTACT: Final = "lost contact with"
"""The beginning of a program's error message after another task stopped answering."""

LOST_AFTER_S: Final = 15.0
"""An agent without a heartbeat for this time is lost, in seconds."""

PACKAGES: Final = "packages"
"""The directory of a run with the packages that its program needs beside those of its runtime."""

_CHIEFS: Final = ("chief-0", "worker-0")


def task_names(cluster: ClusterSpec) -> list[str]:
    """Return the names of all tasks in the cluster's order; `/job:worker/task:0` is `worker-0`."""
    return [f"{job}-{i}" for job, hosts in cluster.items() for i in range(len(hosts))]


def chief_of(tasks: Collection[str]) -> str | None:
    """Return the task that initializes and saves: the chief, else the first worker, if any."""
    return next((task for task in _CHIEFS if task in tasks), None)


def new_run_id(experiment: str) -> str:
    """Return an id for a new run, such as `20261121-0810-async-7f3a`; the time is UTC.

    Args:
        experiment: The experiment's name or the program's stem. A hyphen replaces characters that
            a run id cannot contain.
    """
    name = re.sub(r"[^a-z0-9]+", "-", experiment.lower()).strip("-")[:40].strip("-") or "run"
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime())}-{name}-{secrets.token_hex(2)}"


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

    def packages(self, run_id: str) -> Path:
        """Return the directory of the packages for the user's own program; not collected."""
        return self.run(run_id) / PACKAGES

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
        offset: Position of `data` in the file, in bytes; None if `data` replaces the whole file.
        data: The bytes.
        fault: Why the file is not collected; then there are no bytes. "" if it is collected.
        kept: Whether a file with a fault has data that stays on the run volume.
    """

    path: str
    offset: int | None
    data: bytes
    fault: str = ""
    kept: bool = False
