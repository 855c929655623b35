"""The Slurm backend: submits an environment as a job, and waits for its turn in the queue."""

from __future__ import annotations

import secrets
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from lab.backends import Backend, Check, Notify, no_check
from lab.backends.python import base_environ, missing_python, missing_tensorflow, python_of
from lab.backends.selection import SLURM
from lab.backends.slurm import queue, state
from lab.backends.slurm.environment import SlurmEnvironment
from lab.backends.slurm.state import EnvironmentRecord, StateDir, TaskRecord
from lab.backends.state import lock_environment, state_errors
from lab.errors import LabError
from lab.placement.plan import Plan
from lab.render.slurm import SLURM_DEFAULTS, render_slurm
from lab.signals import ignore_signals
from lab.task.probes.version import digest


class SlurmBackend(Backend):
    """Environments as jobs of Slurm."""

    name: Final = SLURM

    def unavailable_reason(self) -> str | None:
        """Why no job can be submitted here, with a hint; None if it can."""
        if shutil.which("sbatch") is None:
            return "this host has no `sbatch`; log in to a cluster with Slurm"
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why no Python with the plan's TensorFlow is here, with a hint; None if one is."""
        reason = missing_python(plan, root)
        own = python_of(plan, root) == sys.executable
        return reason or (missing_tensorflow() if own else None)

    def notices(self, plan: Plan) -> Sequence[str]:
        """One line about the network of the job."""
        return ("slurm: other users of the cluster's network can reach TensorFlow's servers",)

    def up(
        self,
        plan: Plan,
        *,
        root: Path,
        notify: Notify,
        check: Check = no_check,
        share: bool = False,
    ) -> SlurmEnvironment:
        """Submit a job, wait in the queue, and wait until every agent runs; see `Backend`.

        An interrupt cancels the job.
        """
        with ExitStack() as lock:
            with state_errors():
                lock.enter_context(lock_environment(self.name, plan.name))
            return self._up(plan, root.resolve(), notify, check)

    def projects(self) -> list[str]:
        """Names of all environments that have a record."""
        return state.projects()

    def find_any(self, project: str) -> SlurmEnvironment | None:
        """The environment of this name: waiting, up, or stopped; None: no record.

        Raises:
            LabError: Its record cannot be read.
        """
        if project not in self.projects():
            return None
        state_dir = state.state_dir(project)
        record = state_dir.read()
        return None if record is None else SlurmEnvironment(state_dir, record)

    def _up(self, plan: Plan, root: Path, notify: Notify, check: Check) -> SlurmEnvironment:
        existing = self.find_any(plan.name)
        if existing is not None and (job := existing.job()) is not None:
            raise LabError(
                f"the slurm environment {plan.name!r} is job {job.id} already, {job.state.lower()}",
                f"wait for it, or remove it with `lab down {plan.name}`",
            )
        state_dir = state.state_dir(plan.name)
        with state_errors():
            kept = state_dir.clear()
            state_dir.runs.mkdir(parents=True, mode=0o700, exist_ok=True)
            script = render_slurm(plan, None, SLURM_DEFAULTS, cluster_file="the config")
            state_dir.script.write_text(script, encoding="utf-8")
            record = _record_of(plan, root)
            state_dir.write(record)
        environment = SlurmEnvironment(state_dir, record)
        try:
            _submit(state_dir, record, root)
            environment.wait(notify)
            check(environment)
        except BaseException:
            with ignore_signals():
                environment.end(keep_volume=kept)
            raise
        return environment


def _record_of(plan: Plan, root: Path) -> EnvironmentRecord:
    return EnvironmentRecord(
        project=plan.name,
        job=f"lab-{plan.name}-{secrets.token_hex(4)}",
        cluster_sha256=plan.cluster_sha256,
        root=str(root),
        interpreter=python_of(plan, root),
        tasks=tuple(TaskRecord(each.name, each.node, len(each.gpus)) for each in plan.tasks),
        tensorflow=plan.tensorflow,
        sources_sha256=digest(),
    )


def _submit(state_dir: StateDir, record: EnvironmentRecord, root: Path) -> None:
    own = {"LAB_JOB_DIR": str(state_dir.directory), "LAB_PYTHON": record.interpreter}
    queue.submit(
        state_dir.script,
        name=record.job,
        output=state_dir.log,
        root=root,
        environ={**base_environ(), **own},
    )
