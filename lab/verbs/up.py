"""`lab up`.

Examples:
    # in containers if an engine runs, else as processes
    lab up
    # as processes, without GPUs
    lab up --backend local --cluster clusters/book.yaml --gpus none
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.base.formatting import counted
from lab.base.options import verb
from lab.protocol.runtimes import TENSORFLOW
from lab.runner.store.directory import runs_path
from lab.verbs.common_options import BackendName, Framework, GpuMode, OwnOptions, RunsDir, Share
from lab.verbs.inputs import Config, place_options, project
from lab.verbs.printing import Note, Shown, prints


@dataclass(frozen=True, slots=True, repr=False)
class Booted(Shown):
    """An environment that is up.

    Attributes:
        environment: The environment.
        is_new: Whether this call booted it; otherwise it was already up.
    """

    environment: Environment
    is_new: bool

    def to_json(self) -> dict[str, Any]:
        """Return its name, and where it runs."""
        up = self.environment
        return {"environment": up.project, "backend": up.backend, "new": self.is_new}

    def _shown(self) -> Iterator[Note]:
        name = self.environment.project
        if not self.is_new:
            yield Note(f"environment {name!r} is already up; train with `lab run async`")
            return
        tasks = counted(len(self.environment.tasks()), "task")
        yield Note(
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


command = prints(up)
