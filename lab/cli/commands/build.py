"""`lab build`."""

from __future__ import annotations

from lab.backends.choose import AUTO
from lab.build import build
from lab.cli.options import ClusterFile, GpuMode
from lab.cli.output import say
from lab.render import plan_file
from lab.run.project import cluster_path, find_root


def command(*, cluster: ClusterFile = None, gpus: GpuMode = AUTO) -> None:
    """Build the image that the tasks of a description run in."""
    path = cluster_path(cluster)
    image = build(plan_file(path, gpus), root=find_root(path), say=say)
    say(f"the image {image} is built; boot it with `lab up`")
