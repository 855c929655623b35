"""`lab up`."""

from __future__ import annotations

from lab.backends.choose import AUTO, backends, check_hearing
from lab.backends.proof import boot
from lab.cli.options import (
    BackendName,
    ClusterFile,
    Explain,
    GpuMode,
    RunsDir,
    Share,
    Strict,
    Tensorflow,
)
from lab.console import say
from lab.run.store import runs_dir
from lab.service.planning import Project, make_plan
from lab.service.target import find_target
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
    """Boot the environment of a description, unless it is up already."""
    project = Project.load(cluster)
    planned = make_plan(
        project.cluster,
        gpus,
        tensorflow=tensorflow or CURRENT.tensorflow,
        explain=say if explain else None,
    )
    name = planned.plan.name
    target = find_target(
        backend,
        planned,
        project,
        backends(),
        runs_dir(runs_dir_),
        say=say,
        strict=strict,
        share=share,
    )
    if target.found is not None:
        check_hearing(name, target.found.tasks())
        say(f"environment {name!r} is up already; train with `lab run async`")
        return
    environment = boot(target.backend, target.plan, root=target.root, say=say, share=share)
    say(
        f"environment {environment.project!r} is up with {len(environment.tasks())} tasks;"
        " train with `lab run async`, remove it with `lab down`"
    )
