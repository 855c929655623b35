"""Predictions for other hosts, which are not checked.

They use the costs that were measured on CPUs, and the assumptions below, each with its source.
All assume that no other work uses the cores, and that a task does one thing after another on one
core.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from lab.simulation import Box, Costs, Shape, Way, simulate

GBIT: Final = 1e9 / 8

RESNET_BYTES: Final = 25_557_032 * 4
"""ResNet-50's parameters as float32 (K. He et al., Deep residual learning for image recognition,
2015, as torchvision counts them)."""
RESNET_VARIABLES: Final = 32
"""This number of equal variables replaces its 161, so that each server gets the same number."""
RESNET_BATCH: Final = 256
RESNET_IMAGES_PER_S: Final = 2_375
"""One A100, mixed precision and XLA, batches of 256, TensorFlow 1.15. Eight A100 in a DGX A100 by
Horovod and NCCL: 17,400 (NVIDIA, DeepLearningExamples,
TensorFlow/Classification/ConvNets/resnet50v1.5/README.md, "Training performance results")."""
DGX_CORES: Final = 128
NVLINK: Final = 300e9
"""Bytes per second of an A100's NVLink in each direction (its data sheet: 600 GB/s in both)."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A host, and the trainings on it.

    Attributes:
        title: The heading.
        assumes: The assumptions, as text.
        box: The host.
        shapes: The trainings.
        device_s: Seconds in which a GPU computes a batch; 0: the cores compute it, at the measured
            cost.
        hop_s: CPU seconds of a ring's call at each end; None: as measured with gRPC.
    """

    title: str
    assumes: str
    box: Box
    shapes: Sequence[Shape]
    device_s: float = 0.0
    hop_s: float | None = None


def _served(workers: Sequence[int], servers: Sequence[int], **more: Any) -> list[Shape]:  # noqa: ANN401
    return [
        Shape(way, count, ps, **more)
        for way in (Way.ASYNC, Way.SYNC)
        for ps in servers
        for count in workers
    ]


def _rings(workers: Sequence[int], **more: Any) -> list[Shape]:  # noqa: ANN401
    return [Shape(Way.RING, count, 0, **more) for count in workers]


_RESNET: Final[Mapping[str, Any]] = {
    "batch_size": RESNET_BATCH,
    "variables": (RESNET_BYTES // RESNET_VARIABLES,) * RESNET_VARIABLES,
}
_FUSED: Final[Mapping[str, Any]] = {"batch_size": RESNET_BATCH, "variables": (RESNET_BYTES,)}
_ONE_GPU: Final = (
    f"A GPU takes {RESNET_BATCH} / {RESNET_IMAGES_PER_S:,} s for a batch (NVIDIA's figure of one"
    " A100, mixed precision), and gets its images without cost. Calls between tasks and the bytes"
    " in them have the CPU costs that were measured here; a task serves one call after another."
)
_NCCL: Final = "The ring is NCCL's: all gradients in one buffer, without CPU cost, over"

_GPU_SCENES: Final = (
    Scene(
        "ResNet-50, 8 GPUs in one host: parameter servers",
        f"{_ONE_GPU} {DGX_CORES} cores; servers and workers share them, and use the loopback.",
        Box(DGX_CORES),
        _served((1, 8), (1, 4), **_RESNET),
        device_s=RESNET_BATCH / RESNET_IMAGES_PER_S,
    ),
    Scene(
        "ResNet-50, 8 GPUs in one host: all-reduce",
        f"{_ONE_GPU} {_NCCL} NVLink with {NVLINK / 1e9:.0f} GB/s, 5 µs. NVIDIA measured 17,400"
        " images/s, 92 % of eight times one. The simulation does not include the input pipeline,"
        " nor the time that all-reduce takes from the GPU's computation.",
        Box(DGX_CORES // 8, 0, NVLINK, 5e-6),
        _rings((1, 8), **_FUSED),
        device_s=RESNET_BATCH / RESNET_IMAGES_PER_S,
        hop_s=0.0,
    ),
    Scene(
        "ResNet-50, a machine for each GPU, 100 Gbit/s: parameter servers",
        f"{_ONE_GPU} 16 cores per machine, 20 µs from one to another.",
        Box(16, 0, 100 * GBIT, 20e-6),
        _served((1, 8, 64), (1, 8), **_RESNET),
        device_s=RESNET_BATCH / RESNET_IMAGES_PER_S,
    ),
    Scene(
        "ResNet-50, a machine for each GPU, 100 Gbit/s: all-reduce",
        f"{_ONE_GPU} {_NCCL} the network, 20 µs.",
        Box(16, 0, 100 * GBIT, 20e-6),
        _rings((1, 8, 64, 512), **_FUSED),
        device_s=RESNET_BATCH / RESNET_IMAGES_PER_S,
        hop_s=0.0,
    ),
)


def scenes(cores: int) -> tuple[Scene, ...]:
    """Return all scenes.

    Args:
        cores: The number of cores of the host on which the costs were measured.
    """
    own = Scene(
        "Softmax, a machine for each task, 100 Gbit/s",
        f"Machines of {cores} cores like the measured one; 20 µs from one to another.",
        Box(cores, 0, 100 * GBIT, 20e-6),
        [*_served((1, 8, 64, 512), (1, 4)), *_rings((1, 8, 64, 512))],
    )
    return own, *_GPU_SCENES


def predictions(costs: Costs, scenes: Sequence[Scene]) -> list[dict[str, Any]]:
    """The predictions for each scene, as `scaling.json` stores them."""
    return [
        {"title": scene.title, "assumes": scene.assumes, "rows": _rows(scene, costs)}
        for scene in scenes
    ]


def _rows(scene: Scene, costs: Costs) -> list[dict[str, Any]]:
    own = replace(costs, device_s=scene.device_s)
    if scene.device_s:
        own = replace(own, feed_s=0.0)  # the cost for MNIST's images does not apply
    if scene.hop_s is not None:
        own = replace(own, hop_s=scene.hop_s, hop_wait_s=0.0, eager_s=0.0, byte_s=0.0)
    found = {shape: simulate(shape, own, scene.box) for shape in scene.shapes}
    rows = []
    for shape, forecast in found.items():
        alone = found[replace(shape, workers=1)]
        rows.append(
            {
                "way": shape.way.value,
                "workers": shape.workers,
                "ps": shape.ps,
                "steps_per_s": forecast.steps_per_s,
                "images_per_s": forecast.images_per_s,
                "efficiency": forecast.efficiency(alone),
                "cores_busy": forecast.cores_busy,
                "link_busy": forecast.link_busy,
                "wire_bytes": forecast.wire_bytes,
                "staleness": forecast.staleness,
            }
        )
    return rows
