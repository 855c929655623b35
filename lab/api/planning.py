"""A cluster config, and the nodes on which its tasks would run."""

from __future__ import annotations

import os
from pathlib import Path

from lab.config import Cluster, load_cluster
from lab.placement.plan import Plan
from lab.run.project import DEFAULT_CLUSTER, cluster_path, find_root
from lab.service.planning import Project, make_plan

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
    model, _ = _config(cluster)
    return make_plan(model, gpus).plan


def project(cluster: Cluster | AnyPath | None) -> Project:
    """A config, and the project that it belongs to.

    Raises:
        InputError: There is no such file, it is invalid, or it lies in no project.
    """
    model, path = _config(cluster)
    return Project(model, path, find_root(path or Path(DEFAULT_CLUSTER)))


def _config(cluster: Cluster | AnyPath | None) -> tuple[Cluster, Path | None]:
    """The config, and its file; None for a config in memory."""
    if isinstance(cluster, Cluster):
        return cluster, None
    path = _default() if cluster is None else Path(cluster)
    return load_cluster(path), path


def _default() -> Path:
    """The config of this directory, or that of the project around it: a notebook's."""
    here = Path(DEFAULT_CLUSTER)
    if here.exists():
        return here
    around = find_root(here) / DEFAULT_CLUSTER
    return around if around.exists() else cluster_path(None)
