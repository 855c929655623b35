"""What tasks see of their GPUs: containers and processes, with a driver and without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lab.gpu.evidence import GpuView
from lab.gpu_answers import NO_LIBCUDA, NOT_ASKED, SHOWS_WHOLE_HOST

A, B, C = (f"GPU-0000000{letter}-1111-2222-3333-444444444444" for letter in "abc")
SILENT = {"nvml": "no libnvidia-ml.so.1", "cuda": NO_LIBCUDA, "tensorflow": NOT_ASKED}


def bare(*uuids: str) -> tuple[str, ...]:
    """UUIDs as CUDA shows them."""
    return tuple(each[4:] for each in uuids)


def inside(*pins: str, **changes: Any) -> GpuView:
    """A container to which the engine gave these GPUs, without a driver in it."""
    told = {"NVIDIA_VISIBLE_DEVICES": ",".join(pins)}
    none = {"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "-1"}
    sight = GpuView(told if pins else none, {}, reasons=SILENT, isolated=True, engine=pins)
    return replace(sight, **changes)


def local(*pins: str, **changes: Any) -> GpuView:
    """An agent as a process of the host, without a driver."""
    told = {"CUDA_VISIBLE_DEVICES": ",".join(pins) or "-1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    sight = GpuView(told, reasons={**SILENT, "nodes": SHOWS_WHOLE_HOST, "nvml": SHOWS_WHOLE_HOST})
    return replace(sight, **changes)


def on_a_box(*pins: str, nodes: tuple[int, ...], **changes: Any) -> GpuView:
    """The same as `inside`, with the driver's nodes and libraries."""
    shown = {"nodes": dict.fromkeys(nodes, ""), "nvml": pins, "cuda": bare(*pins)}
    return replace(inside(*pins), **{**shown, **changes})
