"""Compares the GPUs that a task sees with the planned ones; pure."""

from __future__ import annotations

from lab.gpu.verification.check import GpuCheck, GpuStatus, check_gpus
from lab.gpu.verification.evidence import NOTHING
from lab.gpu.verification.observed import GpuView

__all__ = ["NOTHING", "GpuCheck", "GpuStatus", "GpuView", "check_gpus"]
