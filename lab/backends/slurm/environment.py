"""An environment of Slurm: a job, its agents, and their run volume on the shared file system."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from lab.backends.environment import TaskInfo
from lab.backends.log_tail import last_lines
from lab.backends.python import versions
from lab.backends.recorded import EnvironmentDir, Record, RecordedEnvironment
from lab.backends.slurm import NAME, queue
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.protocol.volume import Request
from lab.protocol.volume.clock import file_system_time

_FRESH_S: Final = 3.0
"""Seconds for which an answer of Slurm is reused; sites discourage frequent queries."""

_END_S: Final = 120.0
"""Seconds that Slurm has to end a job; programs have 30 s by default."""

_KILLED_S: Final = 60.0
"""Seconds after which an ending job runs on no reachable node: `KillWait` is 30 s by default."""

_POLL_S: Final = 0.5
_LOOK_S: Final = 0.1  # for files, which cost Slurm nothing

_FAILED_NODE_S: Final = 600.0
"""Seconds that Slurm has to notice a failed node; its `SlurmdTimeout` is 300 s by default."""

_SAME_CLOCK_S: Final = 1.0

_START_S: Final = 120.0
"""Seconds that the agents have to start when the job has its nodes."""

_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRecord(Record):
    """One environment, as stored in `environment.json`.

    Attributes:
        job: The unique name of its job.
        interpreter: The Python that runs agents and programs.
    """

    job: str
    interpreter: str


class StateDir(EnvironmentDir[EnvironmentRecord]):
    """The state directory of one environment, which all nodes must see.

    It holds `environment.json`, the batch script, its output, the run volume `runs/` and the
    agents' output in `output/`.

    Attributes:
        script: The batch script.
        log: The output of the batch script.
    """

    backend = NAME
    record_type = EnvironmentRecord
    hint = "cancel its job with `scancel`"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.script = directory / "cluster.sbatch"
        self.log = directory / "job.log"


class SlurmEnvironment(RecordedEnvironment[EnvironmentRecord]):
    """A job, its agents, and their run volume.

    Its nodes are hosts of their own. At its start, each task checks that it has its number of GPUs.
    """

    backend = NAME
    is_local = False
    state_dirs = StateDir

    _state_dir: StateDir

    def __init__(self, state_dir: StateDir, record: EnvironmentRecord) -> None:
        super().__init__(state_dir, record)
        self._job: queue.Job | None = None
        self._asked_s: float | None = None

    @property
    def is_up(self) -> bool:
        """Whether its job has its nodes."""
        job = self.job()
        return job is not None and job.runs

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

    def wait(self) -> None:
        """Wait until the job has its nodes and all agents run; report why it waits.

        Raises:
            LabError: The job has ended, or an agent does not start.
        """
        shown, pause_s, deadline = "", _WAIT_S, 0.0
        while True:
            job = self.job(fresh=True)
            missing = self._missing_agents()
            if job is None or (deadline and time.monotonic() > deadline):
                unseen = f"no output; all nodes must see {self._state_dir.directory} (LAB_STATE)"
                printed = last_lines(self._state_dir.log, 3) or unseen
                problem = "has ended" if job is None else f"has no agent of {missing[0]}"
                raise LabError(f"the job of {self.project!r} {problem}: {printed}")
            if not job.runs:
                line = f"job {job.id} is waiting in the queue: {job.reason or 'no reason yet'}"
                pause_s, deadline = min(pause_s * 1.2, _MAX_WAIT_S), 0.0
            elif not missing:
                LOG.info(f"slurm: all tasks of job {job.id} are running")
                return
            else:
                line, pause_s = f"job {job.id} is starting its tasks", _WAIT_S
                deadline = deadline or time.monotonic() + _START_S
            if line != shown:
                LOG.info(line)
                shown = line
            self._pause(pause_s, until_all_start=bool(missing))

    def _pause(self, seconds: float, *, until_all_start: bool) -> None:
        """Wait, at most until all agents have started."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if until_all_start and not self._missing_agents():
                return
            time.sleep(_LOOK_S)

    def continuation(self, run_id: str) -> Request | None:
        """Wait until Slurm starts the job again, and its batch step continues a run.

        After the loss of an agent, wait first until Slurm puts the job back into the queue. Slurm
        22.05 cannot start a job with GPUs again that was put back while a dead node was in it.
        """
        if not self.continues(run_id):
            return None
        job, missing = self._job_after_its_end(), self._missing_agents()
        if (request := self._run_after(run_id)) is not None:
            return request
        if job is not None and job.runs and not missing:
            if not self.has_lost_task(run_id):
                return None
            LOG.info(f"job {job.id} runs; waiting until Slurm notices the failed node")
            until = time.monotonic() + _FAILED_NODE_S
            while (job := self._job_after_its_end()) is not None and job.runs:
                if time.monotonic() >= until:  # no node has failed
                    queue.requeue(job.id)
                time.sleep(_POLL_S)
        if job is None:
            return None
        if not job.runs:
            LOG.info(
                f"Slurm has put job {job.id} back into the queue; run {run_id} continues with it"
            )
        try:
            self.wait()
        except LabError as error:
            LOG.warning(str(error))
        return self._run_after(run_id)

    def _missing_agents(self) -> list[str]:
        """The tasks whose agents have not started."""
        return [record.task for record in self._record.tasks if not self.agent(record.task)]

    def _job_after_its_end(self) -> queue.Job | None:
        """The job when Slurm is not ending its tasks."""
        while (job := self.job(fresh=True)) is not None and job.state == queue.COMPLETING:
            time.sleep(_POLL_S)
        return job

    def _run_after(self, run_id: str) -> Request | None:
        """The run that was submitted after another one."""
        runs = self.runs()
        return next((new for old, new in pairwise(runs) if old.run_id == run_id), None)

    def mark_ends(self) -> None:
        """Mark the tasks without an end as lost, if the job has ended or is in the queue again."""
        job = self.job(fresh=True)
        if job is None:
            self.mark_lost("Slurm ended the job")
        elif not job.runs:
            self.mark_lost("Slurm put the job back into the queue")

    def clock_offset_s(self) -> float:
        """Seconds by which the shared file system's clock is ahead of this host's clock.

        Less than a second counts as 0: the file system's clock is coarse.

        Raises:
            LabError: The run volume cannot be used.
        """
        with self.run_volume.errors():
            offset_s = file_system_time(self._state_dir.directory) - time.time()
        return offset_s if abs(offset_s) >= _SAME_CLOCK_S else 0.0

    def stopped(self) -> LabError:
        """The error for an environment that has stopped."""
        return LabError(
            f"the slurm environment {self.project!r} has stopped: its job is not running",
            f"see {self._state_dir.log}; its runs stay in {self._state_dir.runs} until `lab down`",
        )

    def tasks(self) -> list[TaskInfo]:
        """All tasks, in the plan's order."""
        job = self.job()
        state = f"job {job.id} {job.state.lower()}" if job is not None else "its job has ended"
        return self.tasks_in(f"{state}: {job.reason}" if job is not None and job.reason else state)

    def shell(self, task: str) -> list[str]:
        """Refuse; see `Environment`.

        Raises:
            InputError: Always.
        """
        self.known_task({record.task: record for record in self._record.tasks}, task)
        job = self.job()
        number = "JOB" if job is None else job.id
        raise InputError(
            "`lab shell` cannot open a shell in a Slurm job",
            f"use `srun --jobid={number} --overlap --pty bash`",
        )

    def provenance(self) -> dict[str, str]:
        """What really ran: interpreter and versions, Slurm's version, the job."""
        job, interpreter = self.job(), self._record.interpreter
        return {
            "interpreter": interpreter,
            **versions(interpreter),
            "slurm": queue.version(),
            "job": "" if job is None else str(job.id),
        }

    def boot_file(self) -> tuple[str, str]:
        """`cluster.sbatch`: the batch script."""
        return self._state_dir.script.name, self._state_dir.script.read_text(encoding="utf-8")

    def stop(self, *, gently: bool = True) -> None:
        """Cancel its job, always gently; see `RecordedEnvironment`.

        Raises:
            LabError: The job does not end.
        """
        del gently
        queue.cancel(self._record.job)
        began = time.monotonic()
        while (job := self.job(fresh=True)) is not None:
            if job.state != queue.COMPLETING:  # also if Slurm puts it back meanwhile
                queue.cancel(self._record.job)
            passed_s = time.monotonic() - began
            if job.state == queue.COMPLETING and passed_s >= _KILLED_S:
                break  # Slurm waits for a failed node
            if passed_s >= _END_S:
                raise LabError(
                    f"job {job.id} of {self.project} has not ended after {_END_S:.0f} s",
                    f"see `scontrol show job {job.id}`, then try again",
                )
            time.sleep(_POLL_S)
