"""`lab build`.

Examples:
    # for this host: with TensorFlow for GPUs if it has some
    lab build
    # with TensorFlow for CPUs
    lab build --gpus none
"""

from __future__ import annotations

from lab.backends.compose.image_build import build_image
from lab.backends.names import AUTO
from lab.base.log import LOG
from lab.base.options import verb
from lab.cluster.config import load_cluster
from lab.cluster.placement.place import place_here
from lab.cluster.project import cluster_path, find_root
from lab.protocol.runtimes import TENSORFLOW
from lab.verbs.common_options import ClusterFile, Framework, GpuMode


@verb
def build(
    *,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    framework: Framework = None,
) -> None:
    """Build the image of the tasks of a config."""
    path = cluster_path(cluster)
    plan = place_here(load_cluster(path), gpus, framework or TENSORFLOW.name).plan
    image = build_image(plan, root=find_root(path))
    LOG.info(f"built the image {image}; boot an environment with `lab up`")


command = build
