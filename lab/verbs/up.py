"""`lab up`.

Examples:
    # in containers if an engine runs, else as processes
    lab up
    # as processes, without GPUs
    lab up --backend local --cluster clusters/book.yaml --gpus none
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.backends.registry import options_of
from lab.base.console import messages_shown
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.options import Flag, Switch, reads_options
from lab.cluster.config import Cluster
from lab.cluster.project import AnyPath
from lab.protocol.runtimes import TENSORFLOW
from lab.runner.prepared import PlaceOptions
from lab.runner.store.directory import runs_path
from lab.verbs.common_options import BackendName, Framework, GpuMode, OwnOptions, RunsDir
from lab.verbs.inputs import project
from lab.verbs.printing import prints


@dataclass(frozen=True, slots=True)
class Booted:
    """An environment that is up.

    Attributes:
        environment: The environment.
        is_new: Whether this call booted it; otherwise it was already up.
    """

    environment: Environment
    is_new: bool

    @messages_shown()
    def show(self) -> None:
        """Say that it is up, and what comes next."""
        name = self.environment.project
        if not self.is_new:
            LOG.info(f"environment {name!r} is up already; train with `lab run async`")
            return
        tasks = counted(len(self.environment.tasks()), "task")
        LOG.info(
            f"environment {name!r} is up with {tasks};"
            " train with `lab run async`, remove it with `lab down`"
        )


@reads_options
@messages_shown()
def up(
    cluster: Annotated[Cluster | AnyPath | None, Flag(shows="FILE")] = None,
    *,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    share: Annotated[bool, Switch()] = False,
    framework: Framework = None,
    runs_dir: RunsDir = None,
) -> Booted:
    """Boot the environment of a config, unless it exists; its tasks wait for runs.

    Args:
        cluster: The cluster config (default: cluster.yaml).
        backend: A backend, such as `local` or `compose`, or `auto`.
        option: Options of the backend alone (`lab backends` lists them): `{"time": "2h"}`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        share: Also use GPUs that another environment of lab holds.
        framework: The tasks' framework.
        runs_dir: The directory of the run store (default: LAB_RUNS_DIR, or ./runs).

    Raises:
        InputError: An argument is invalid, or the environment that is up does not fit.
        LabError: The plan does not fit the host, or the environment cannot be booted.
    """
    where = project(cluster)
    place = PlaceOptions(backend=backend, own=options_of(backend, option), gpus=gpus, share=share)
    chosen, running, placed = place.find(
        place.plan(where, framework or TENSORFLOW.name), where, runs_path(runs_dir)
    )
    if running is None:
        booted = boot(chosen, placed.plan, root=where.root, share=share)
        return Booted(booted, is_new=True)
    running.require_agents()
    running.block_host()
    return Booted(running, is_new=False)


command = prints(up, json="")
