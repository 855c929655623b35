"""The Slurm backend: submits an environment as a job, and waits for its turn in the queue."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import lab
from lab.backends import Backend, Check, no_check
from lab.backends.names import AUTO, SLURM
from lab.backends.python import base_environ, missing_python, missing_tensorflow, python_of
from lab.backends.slurm import queue, state
from lab.backends.slurm.environment import SlurmEnvironment
from lab.backends.slurm.state import EnvironmentRecord, StateDir, TaskRecord
from lab.backends.state import lock_environment, state_errors
from lab.config import Cluster
from lab.errors import InputError, LabError, Notify
from lab.formatting import counted
from lab.image_digest import digest
from lab.placement.place import Placed
from lab.placement.plan import Plan
from lab.render.slurm import SlurmOptions, load_for_slurm, plan_for_slurm, render_slurm
from lab.signals import ignore_signals
from lab.text import short


class SlurmBackend(Backend):
    """Environments as jobs of Slurm."""

    name: Final = SLURM

    def plan(
        self, cluster: Cluster, mode: str, *, tensorflow: str, file: Path | None = None
    ) -> Placed:
        """Place a config on nodes that Slurm selects; see `Backend`."""
        if mode not in {AUTO, "none"}:
            raise InputError(f"--gpus {mode}: Slurm selects the GPUs", "leave it out, or use none")
        gpus = mode == AUTO
        if file is not None:
            load_for_slurm(file, gpus=gpus)
        return Placed(plan_for_slurm(cluster, gpus=gpus, tensorflow=tensorflow), None)

    def unavailable_reason(self) -> str | None:
        """Why no job can be submitted here, with a hint; None if it can."""
        if shutil.which("sbatch") is None:
            return "this host has no `sbatch`; log in to a cluster with Slurm"
        return None

    def missing_image(self, plan: Plan, *, root: Path) -> str | None:
        """Why no Python with the plan's TensorFlow is here, with a hint; None if one is."""
        if image := _options().container:
            return _unusable(Path(image), root)
        reason = missing_python(plan, root)
        own = python_of(plan, root) == sys.executable
        return reason or (missing_tensorflow() if own else None)

    def notices(self, plan: Plan) -> Sequence[str]:
        """Lines about the network of the job, and its image."""
        image = _options().container
        return (
            "slurm: other users of the cluster's network can reach TensorFlow's servers",
            *((f"slurm: the tasks run in {short(image)}",) if image else ()),
        )

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
        _check_nodes(plan)
        state_dir = state.state_dir(plan.name)
        with state_errors():
            kept = state_dir.clear(notify)
            state_dir.runs.mkdir(parents=True, mode=0o700, exist_ok=True)
            options = _options()
            script = render_slurm(plan, None, options, cluster_file="the config")
            state_dir.script.write_text(script, encoding="utf-8")
            record = _record_of(plan, root, options.container)
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


def _check_nodes(plan: Plan) -> None:
    """Check that Slurm has enough nodes. It keeps a job that never fits in the queue.

    Raises:
        InputError: It has too few.
    """
    needed = len({task.node for task in plan.tasks})
    partition, count = queue.nodes(os.environ.get("SBATCH_PARTITION"))
    if 0 < count < needed:
        raise InputError(
            f"{plan.name!r} has {needed} nodes with tasks, and Slurm's partition"
            f" {short(partition)} has {counted(count, 'node')}",
            "use fewer nodes, or another partition with SBATCH_PARTITION",
        )


def _options() -> SlurmOptions:
    """The options of a job, from the variables LAB_CONTAINER and LAB_SLURM_HET."""
    image = os.environ.get("LAB_CONTAINER", "")
    het = os.environ.get("LAB_SLURM_HET") != "no"
    return SlurmOptions(het=het, container=str(Path(image).resolve()) if image else "")


def _unusable(image: Path, root: Path) -> str | None:
    package = Path(lab.__file__).parents[1]
    if not image.exists():
        name = short(str(image))
        return f"there is no image {name}; make it with `apptainer build`, or unset LAB_CONTAINER"
    if package.resolve() != root.resolve():
        return (
            f"an image needs lab in the project's directory, but it is in {package}; run it there"
        )
    return None


def _record_of(plan: Plan, root: Path, image: str) -> EnvironmentRecord:
    return EnvironmentRecord(
        project=plan.name,
        job=f"lab-{plan.name}-{secrets.token_hex(4)}",
        cluster_sha256=plan.cluster_sha256,
        root=str(root),
        interpreter="" if image else python_of(plan, root),
        tasks=tuple(TaskRecord(each.name, each.node, len(each.gpus)) for each in plan.tasks),
        tensorflow=plan.tensorflow,
        sources_sha256=digest(),
        container=image,
        container_sha256=_sha256(Path(image)),
    )


def _sha256(image: Path) -> str:
    """The digest of an image; "" for a directory, which Apptainer accepts, too."""
    if not image.is_file():
        return ""
    with image.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _submit(state_dir: StateDir, record: EnvironmentRecord, root: Path) -> None:
    own = {"LAB_JOB_DIR": str(state_dir.directory), "LAB_PYTHON": record.interpreter}
    queue.submit(
        state_dir.script,
        name=record.job,
        output=state_dir.log,
        root=root,
        environ={**base_environ(), **own},
    )
