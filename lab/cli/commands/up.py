"""`lab up`.

Examples:
    # on containers where an engine answers, else on processes
    lab up
    # on processes, without GPUs
    lab up --backend local --cluster clusters/book.yaml --gpus none
"""

from __future__ import annotations

from lab.backends.choose import AUTO, backends, check_same, choose
from lab.backends.hearing import check_hearing
from lab.backends.proof import boot
from lab.cli import planning
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
from lab.cli.output import say
from lab.config import load_cluster
from lab.run.directory import runs_dir
from lab.run.homecoming import bring_leftovers_home
from lab.run.project import cluster_path, find_root
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
    path = cluster_path(cluster)
    described = load_cluster(path)
    root = find_root(path)
    draft = planning.draft(
        described, gpus, explain=explain, tensorflow=tensorflow or CURRENT.tensorflow
    )
    plan = draft.plan
    chosen = choose(backend, plan, root, backends(), say)
    if chosen.environment is not None:
        check_same(chosen.environment, plan, str(path), root)
        check_hearing(plan.name, chosen.environment.tasks())
        say(f"environment {plan.name!r} is up already; train with `lab run async`")
        return
    draft.heed(strict=strict)
    bring_leftovers_home(chosen.backend, plan.name, runs_dir(runs_dir_), say)
    environment = boot(chosen.backend, plan, root=root, say=say, share=share)
    say(
        f"environment {environment.project!r} is up with {len(environment.tasks())} tasks;"
        " train with `lab run async`, remove it with `lab down`"
    )
