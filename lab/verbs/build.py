"""`lab build`.

Examples:
    # for this host: with TensorFlow for GPUs if it has any
    lab build
    # with TensorFlow for CPUs
    lab build --gpus none
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from lab.backends.compose.image_build import build_image
from lab.backends.names import AUTO
from lab.base.options import verb
from lab.cluster.placement.place import place_here
from lab.protocol.runtimes import TENSORFLOW
from lab.verbs.common_options import Framework, GpuMode
from lab.verbs.inputs import Config, project
from lab.verbs.printing import Note, Shown, prints


@dataclass(frozen=True, slots=True, repr=False)
class Built(Shown):
    """An image that was built.

    Attributes:
        image: Its name.
        seconds: How long it took.
    """

    image: str
    seconds: float

    def _shown(self) -> Iterator[Note]:
        yield Note(f"built the image {self.image}; boot an environment with `lab up`")


@verb
def build(
    *,
    cluster: Config = None,
    gpus: GpuMode = AUTO,
    framework: Framework = None,
) -> Built:
    """Build the image of the tasks of a config."""
    began, where = time.monotonic(), project(cluster)
    plan = place_here(where.cluster, gpus, framework or TENSORFLOW.name).plan
    image = build_image(plan, root=where.root)
    return Built(image, time.monotonic() - began)


command = prints(build)
