"""What the box has: its GPUs, CPUs and memory."""

from lab.gpus.inventory import survey, take_inventory
from lab.gpus.model import MODES, Condition, Fault, Gpu, Inventory, Pair, Process
from lab.gpus.nvml import NoDriverError, NvmlError

__all__ = [
    "MODES",
    "Condition",
    "Fault",
    "Gpu",
    "Inventory",
    "NoDriverError",
    "NvmlError",
    "Pair",
    "Process",
    "survey",
    "take_inventory",
]
