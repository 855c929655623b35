"""`lab up`.

Examples:
    # in containers if an engine runs, else as processes
    lab up
    # as processes, without GPUs
    lab up --backend local --cluster clusters/book.yaml --gpus none
"""

from __future__ import annotations

from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.backends.selection import require_agents
from lab.console import notify
from lab.formatting import counted
from lab.options.shared import (
    BackendName,
    ClusterFile,
    Explain,
    GpuMode,
    RunsDir,
    Share,
    Strict,
    Tensorflow,
)
from lab.project import Project
from lab.run.planning import make_plan
from lab.run.prepared import find_place
from lab.store.directory import runs_dir
from lab.tf_versions import CURRENT


def command(
    *,
    backend: BackendName = AUTO,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    explain: Explain = False,
    strict: Strict = False,
    share: Share = False,
    tensorflow: Tensorflow = None,
    runs_dir_: RunsDir = None,
) -> None:
    """Boot the environment of a config, unless it exists."""
    project = Project.load(cluster)
    placed = make_plan(
        project.cluster,
        gpus,
        tensorflow=tensorflow or CURRENT.tensorflow,
        backend=backend,
        file=project.path,
        explain=notify if explain else None,
    )
    name = placed.plan.name
    chosen, environment = find_place(
        backend,
        gpus,
        placed,
        project,
        runs_dir(runs_dir_),
        notify=notify,
        strict=strict,
    )
    if environment is not None:
        require_agents(name, environment.tasks())
        environment.block_host(notify)
        notify(f"environment {name!r} is up already; train with `lab run async`")
        return
    environment = boot(chosen, placed.plan, root=project.root, notify=notify, share=share)
    tasks = counted(len(environment.tasks()), "task")
    notify(
        f"environment {environment.project!r} is up with {tasks};"
        " train with `lab run async`, remove it with `lab down`"
    )
