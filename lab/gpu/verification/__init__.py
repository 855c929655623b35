"""What a task was to see, and what it sees: the comparison. Nothing here asks anybody."""

from __future__ import annotations

from lab.gpu.verification.check import GpuCheck, GpuStatus, check_gpus
from lab.gpu.verification.evidence import NOTHING
from lab.gpu.verification.observed import GpuView

__all__ = ["NOTHING", "GpuCheck", "GpuStatus", "GpuView", "check_gpus"]
