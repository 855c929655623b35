"""A cluster description, and where its tasks would run."""

from __future__ import annotations

import os
from pathlib import Path

from lab.cli import planning
from lab.config import Cluster, load_cluster
from lab.placement.plan import Plan
from lab.run import project

AnyPath = str | os.PathLike[str]


def load(path: AnyPath) -> Cluster:
    """Read a cluster description.

    Raises:
        InputError: There is no such file, or it cannot be read.
        DescriptionError: It has faults; all of them are named.
    """
    return load_cluster(Path(path))


def plan(cluster: Cluster | AnyPath | None = None, gpus: str = "none") -> Plan:
    """Say which task would run where, with which GPUs and CPUs; nothing is started.

    Args:
        cluster: The description, or its file; None: the project's `cluster.yaml`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.

    Raises:
        InputError: The description or the mode is wrong.
        LabError: The box is too small, or its driver does not answer.
    """
    return planning.draft(described(cluster)[0], gpus, explain=False).plan


def described(cluster: Cluster | AnyPath | None) -> tuple[Cluster, Path | None]:
    """The description, and the file that it stands in; None: it stands in none that is known.

    Raises:
        InputError: There is no such file, or it has faults.
    """
    if isinstance(cluster, Cluster):
        return cluster, None
    path = _default() if cluster is None else Path(cluster)
    return load_cluster(path), path


def _default() -> Path:
    """The description of this directory, or that of the project around it: a notebook's."""
    here = Path(project.DEFAULT_CLUSTER)
    if here.exists():
        return here
    around = project.find_root(here) / project.DEFAULT_CLUSTER
    return around if around.exists() else project.cluster_path(None)
