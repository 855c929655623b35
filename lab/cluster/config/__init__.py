"""The cluster config: the pseudo-nodes of a host, and the tasks that run on them."""

from __future__ import annotations

from lab.cluster.config.cluster import Cluster
from lab.cluster.config.load import load_cluster, parse_cluster, with_workers

__all__ = ["Cluster", "load_cluster", "parse_cluster", "with_workers"]
