"""The inventory of a host: its GPUs, CPUs and memory."""

from lab.gpu.inventory import (
    another_host,
    chosen_host,
    read_host,
    take_inventory,
)
from lab.gpu.model import MODES, Condition, Fault, Gpu, Inventory, Pair, Process
from lab.gpu.nvml import NoDriverError, NvmlError
from lab.gpu.visible import VISIBLE_GPUS

__all__ = [
    "MODES",
    "VISIBLE_GPUS",
    "Condition",
    "Fault",
    "Gpu",
    "Inventory",
    "NoDriverError",
    "NvmlError",
    "Pair",
    "Process",
    "another_host",
    "chosen_host",
    "read_host",
    "take_inventory",
]
