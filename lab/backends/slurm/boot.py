"""The boot of an environment of Slurm: submits a job, and waits for its turn in the queue."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass

from lab.backends.boot import Boot
from lab.backends.options import Values
from lab.backends.python import base_environ, python_of
from lab.backends.recorded import TaskRecord
from lab.backends.rendered_file import Rendering
from lab.backends.slurm import NAME, queue
from lab.backends.slurm.environment import EnvironmentRecord, SlurmEnvironment, StateDir
from lab.backends.slurm.render import render
from lab.backends.state import state_errors
from lab.base import variables as var
from lab.base.errors import InputError, LabError
from lab.base.image_digest import digest
from lab.cluster.placement.plan import Plan


@dataclass(eq=False)
class SlurmBoot(Boot[SlurmEnvironment]):
    """The steps that submit a job, and wait in the queue. An interrupt cancels the job.

    Attributes:
        own: The backend's own options.
    """

    backend = NAME
    own: Values
    _environment: SlurmEnvironment | None = None
    _kept: bool = False

    def __post_init__(self) -> None:
        self._state_dir = StateDir.of(self.plan.name)

    def prepare(self) -> None:
        """Refuse an environment with a job, and a plan with more nodes than Slurm has."""
        record = self._state_dir.read()
        job = None if record is None else SlurmEnvironment(self._state_dir, record).job()
        if job is not None:
            name = self.plan.name
            raise LabError(
                f"the slurm environment {name!r} exists as job {job.id}, {job.state.lower()}",
                f"wait for it, or remove it with `lab down {name}`",
            )
        _check_nodes(self.plan)
        self._kept = self._state_dir.kept.exists()

    def start(self, lock: int | None, hold: int | None) -> SlurmEnvironment:
        """Submit the job, and wait until every agent runs; see `Boot`."""
        del lock, hold
        plan = self.plan
        with state_errors():
            self._state_dir.clear()
            script = render(plan, self.own, Rendering("the config"))
            self._state_dir.script.write_text(script, encoding="utf-8")
            record = EnvironmentRecord(
                project=plan.name,
                job=f"lab-{plan.name}-{secrets.token_hex(4)}",
                cluster_sha256=plan.cluster_sha256,
                root=str(self.root),
                interpreter=python_of(plan, self.root),
                tasks=tuple(TaskRecord(task.name, task.node) for task in plan.tasks),
                runtime=plan.runtime,
                sources_sha256=digest(),
            )
            self._state_dir.write(record)
        self._environment = SlurmEnvironment(self._state_dir, record)
        directory = str(self._state_dir.directory)
        own = {var.LAB_JOB_DIR: directory, var.LAB_PYTHON: record.interpreter}
        queue.submit(
            self._state_dir.script,
            name=record.job,
            output=self._state_dir.log,
            root=self.root,
            environ={**base_environ(), **own},
        )
        self._environment.wait()
        return self._environment

    def undo(self) -> None:
        """Cancel the job and remove what a failed boot wrote; see `Boot`."""
        if self._environment is not None:
            self._environment.end(keep_volume=self._kept)
        else:
            self._state_dir.remove(keep_volume=self._kept)


def _check_nodes(plan: Plan) -> None:
    """Check that Slurm has enough nodes. It keeps a job that never fits in the queue.

    Raises:
        InputError: It has too few.
    """
    needed = len({task.node for task in plan.tasks})
    partition, count = queue.nodes(os.environ.get("SBATCH_PARTITION"))
    if 0 < count < needed:
        raise InputError(
            f"{plan.name!r} needs {needed} nodes, and Slurm's partition {partition} has {count}",
            "use fewer nodes, or another partition with SBATCH_PARTITION",
        )
