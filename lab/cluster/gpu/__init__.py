"""The inventory of a host: its GPUs, CPUs and memory."""

from lab.cluster.gpu.inventory import (
    another_host,
    chosen_host,
    host_gpus,
    read_host,
    take_inventory,
)
from lab.cluster.gpu.values import Condition, Fault, Gpu, Inventory, NvmlError, Pair, Process

__all__ = [
    "Condition",
    "Fault",
    "Gpu",
    "Inventory",
    "NvmlError",
    "Pair",
    "Process",
    "another_host",
    "chosen_host",
    "host_gpus",
    "read_host",
    "take_inventory",
]
