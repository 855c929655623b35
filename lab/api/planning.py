"""Load a cluster config and plan the nodes of its tasks."""

from __future__ import annotations

from pathlib import Path

from lab.config import Cluster, load_cluster
from lab.placement.plan import Plan
from lab.project import DEFAULT_CLUSTER, AnyPath, Project, cluster_path, find_root
from lab.run.planning import make_plan


def load(path: AnyPath) -> Cluster:
    """Read a cluster config.

    Raises:
        InputError: The file does not exist or cannot be read.
        ConfigError: The config has errors; the message lists all of them.
    """
    return load_cluster(Path(path))


def plan(cluster: Cluster | AnyPath | None = None, gpus: str = "none") -> Plan:
    """Plan the node, GPUs and CPUs of each task; start nothing.

    Args:
        cluster: The config, or its file; None: the project's `cluster.yaml`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.

    Raises:
        InputError: The config or the mode is invalid.
        LabError: The host is too small, or its driver does not answer.
    """
    model, _ = _config(cluster)
    return make_plan(model, gpus).plan


def project(cluster: Cluster | AnyPath | None, default: str = DEFAULT_CLUSTER) -> Project:
    """Return a config with the project that it belongs to.

    Args:
        cluster: The config, or its file; None: the project's default config.
        default: The path of the default config in the project.

    Raises:
        InputError: The file does not exist or is invalid.
    """
    model, path = _config(cluster, default)
    return Project(model, path, find_root(path or Path(DEFAULT_CLUSTER)))


def _config(
    cluster: Cluster | AnyPath | None, default: str = DEFAULT_CLUSTER
) -> tuple[Cluster, Path | None]:
    """Return the config and its file; the file is None for a config in memory."""
    if isinstance(cluster, Cluster):
        return cluster, None
    path = cluster_path(cluster, default=default)
    return load_cluster(path), path
