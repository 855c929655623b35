"""`lab up`.

Examples:
    # in containers if an engine runs, else as processes
    lab up
    # as processes, without GPUs
    lab up --backend local --cluster clusters/book.yaml --gpus none
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.base.console import messages_shown
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.options import verb
from lab.protocol.runtimes import TENSORFLOW
from lab.runner.store.directory import runs_path
from lab.verbs.common_options import BackendName, Framework, GpuMode, OwnOptions, RunsDir, Share
from lab.verbs.inputs import Config, place_options, project
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


@verb
def up(
    cluster: Config = None,
    *,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    share: Share = False,
    framework: Framework = None,
    runs_dir: RunsDir = None,
) -> Booted:
    """Boot the environment of a config, unless it exists; its tasks wait for runs.

    `lab up --help` describes all options.

    Raises:
        InputError: An argument is invalid, or the environment that is up does not fit.
        LabError: The plan does not fit the host, or the environment cannot be booted.
    """
    where, place = project(cluster), place_options(locals())
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
