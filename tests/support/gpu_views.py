"""What tasks see of their GPUs: containers and processes, with a driver and without."""

from __future__ import annotations

from lab.cluster.gpu.verification import GpuView

A, B, C = (f"GPU-0000000{letter}-1111-2222-3333-444444444444" for letter in "abc")

NO_DRIVER = GpuView(driver=False)
"""A container or a process where the driver's library is missing."""


def inside(*gpus: str, seen: tuple[str, ...] | None = None, nvml: str = "") -> GpuView:
    """A container with these GPUs; its variables allow all of them, or those that are given."""
    return GpuView(given=gpus, seen=gpus if seen is None else seen, nvml=nvml)


def local(*gpus: str, cuda: str = "", nvml: str = "") -> GpuView:
    """A process of the host, whose variables allow these GPUs."""
    return GpuView(seen=gpus, cuda=cuda, nvml=nvml)
