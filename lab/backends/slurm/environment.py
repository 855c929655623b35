"""An environment on Slurm: a job, and its run volume on the shared file system."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.backends import (
    Notify,
    TaskInfo,
)
from lab.backends.directory import DirectoryEnvironment, remove_tree
from lab.backends.python import versions
from lab.backends.selection import SLURM, known_task
from lab.backends.slurm import queue
from lab.backends.slurm.state import EnvironmentRecord, StateDir
from lab.errors import InputError, LabError
from lab.gpu.verification import GpuView
from lab.task.protocol.files import read_regular

_FRESH_S: Final = 3.0
"""Seconds for which an answer of Slurm counts as new; sites do not want more questions."""

_END_S: Final = 120.0
"""Seconds that Slurm has to end a job; programs have 30 s by default."""

_POLL_S: Final = 0.5


class SlurmEnvironment(DirectoryEnvironment):
    """A job, its agents, and their run volume."""

    backend = SLURM
    is_local = False

    def __init__(self, state_dir: StateDir, record: EnvironmentRecord) -> None:
        super().__init__(state_dir.runs)
        self._state_dir = state_dir
        self._record = record
        self._job: queue.Job | None = None
        self._asked_s: float | None = None
        self.project = record.project
        self.folder = record.root
        self.cluster_sha256 = record.cluster_sha256
        self.tensorflow = record.tensorflow

    @property
    def is_up(self) -> bool:
        """Whether its job has its nodes."""
        job = self.job()
        return job is not None and job.runs

    @property
    def sources_sha256(self) -> str:
        """Digest of lab's code that its agents run."""
        return self._record.sources_sha256

    def job(self, *, fresh: bool = False) -> queue.Job | None:
        """Return its job; None if it has ended.

        Args:
            fresh: Whether to ask Slurm even if it has just answered.

        Raises:
            LabError: Slurm does not answer.
        """
        now = time.monotonic()
        if fresh or self._asked_s is None or now - self._asked_s > _FRESH_S:
            self._job, self._asked_s = queue.find(self._record.job), now
        return self._job

    def missing_agents(self) -> list[str]:
        """Return the tasks whose agents have not started."""
        return [each.task for each in self._record.tasks if not self._agent(each.task)]

    def output(self, task: str) -> Path:
        """The file with the output of a task's agent."""
        return self._state_dir.output(task)

    def stopped(self) -> LabError:
        """The error for an environment that has stopped."""
        return LabError(
            f"the slurm environment {self.project!r} has stopped: its job does not run",
            f"see {self._state_dir.log}; until `lab down`, its runs are in {self._state_dir.runs}",
        )

    def cluster_spec(self) -> dict[str, list[str]]:
        """TensorFlow's cluster spec, as the agents report it."""
        spec: dict[str, list[str]] = {}
        for each in self._record.tasks:
            address = self._agent(each.task).get("address", "")
            spec.setdefault(each.task.rpartition("-")[0], []).append(address)
        return spec

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        job = self.job()
        state = f"job {job.id} {job.state.lower()}" if job is not None else "its job has ended"
        if job is not None and job.reason:
            state = f"{state}: {job.reason}"
        found = []
        for each in self._record.tasks:
            agent = self._agent(each.task)
            gpus = agent.get("gpus", "none").split(",")
            found.append(
                TaskInfo(
                    task=each.task,
                    node=each.node,
                    address=agent.get("address", ""),
                    gpus=() if gpus == ["none"] else tuple(gpus),
                    alive=self.is_up and bool(agent),
                    detail=state,
                )
            )
        return found

    def block_host(self, notify: Notify) -> None:
        """Do nothing: the nodes are hosts of their own."""

    def inject_network_fault(self, node: str, arguments: Sequence[str]) -> None:
        """Refuse; see `Environment`.

        Raises:
            LabError: Always.
        """
        raise LabError(
            f"a job of Slurm cannot change the network of node {node}",
            "use other faults: kill, stop, pause, slow",
        )

    def shell(self, task: str) -> list[str]:
        """Refuse; see `Environment`.

        Raises:
            InputError: Always.
        """
        known_task(self.project, {each.task: each for each in self._record.tasks}, task)
        job = self.job()
        number = "JOB" if job is None else job.id
        raise InputError(
            "`lab shell` opens no shell in a job of Slurm",
            f"use `srun --jobid={number} --overlap --pty bash`",
        )

    def probe_gpus(self, *, tensorflow: bool) -> dict[str, GpuView]:
        """Probe nothing: at its start, each task checks that it has its number of GPUs."""
        return {}

    def provenance(self) -> dict[str, str]:
        """What really ran: interpreter, versions, Slurm's version, the job."""
        job = self.job()
        return {
            "interpreter": self._record.interpreter,
            "slurm": queue.version(),
            "job": "" if job is None else str(job.id),
            **versions(self._record.interpreter),
        }

    def boot_file(self) -> tuple[str, str]:
        """`cluster.sbatch`: the batch script."""
        return self._state_dir.script.name, self._state_dir.script.read_text(encoding="utf-8")

    def is_recorded(self) -> bool:
        """Whether its record is still that of this object."""
        return self._state_dir.read() == self._record

    def end(self, *, keep_volume: bool = False) -> None:
        """Cancel its job and remove its directory; the caller holds the lock.

        Args:
            keep_volume: Whether to keep the run volume and the environment's record.

        Raises:
            LabError: The job does not end, or files are left.
        """
        queue.cancel(self._record.job)
        until = time.monotonic() + _END_S
        while (job := self.job(fresh=True)) is not None:
            if time.monotonic() > until:
                raise LabError(
                    f"job {job.id} of {self.project} has not ended after {_END_S:.0f} s",
                    f"see `scontrol show job {job.id}`, then try again",
                )
            time.sleep(_POLL_S)
        if keep_volume:
            self._state_dir.kept.touch()
        else:
            remove_tree(self._state_dir.directory)

    def _agent(self, task: str) -> Mapping[str, str]:
        """What a task's agent reports of itself; empty if it does not run."""
        try:
            found = json.loads(read_regular(self._volume.agent(task)))
            return {name: str(found[name]) for name in ("address", "gpus")}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
