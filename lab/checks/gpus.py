"""Checks of the NVIDIA driver, its GPUs and CUDA, which every backend needs for GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from lab.backends.checks import Check, Outcome, failed, ok, skipped, warning
from lab.base.formatting import counted
from lab.base.text import short
from lab.base.units import memory_for_people
from lab.cluster.gpu import Condition, Inventory
from lab.cluster.gpu.values import CUDA_VERSION, DRIVER, DRIVER_VERSION

_UVM: Final = "nvidia-uvm"
"""The device node that CUDA needs to start."""

_CONTROL: Final = "nvidiactl"
"""A node that exists if the driver has nodes; on WSL it has none."""

_PCI_VENDOR: Final = "0x10de"
_PCI_DISPLAY: Final = "0x03"


def checks(inventory: Inventory) -> Iterator[Check]:
    """Yield the checks of the GPUs in an inventory of this host."""
    yield Check("driver", lambda: check_driver(inventory, pci_gpus()))
    yield Check("devices", partial(check_devices, inventory))
    yield Check("CUDA", partial(check_cuda, inventory))


def pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """Return the number of NVIDIA GPUs on the PCI bus, with or without a driver."""
    return sum(
        vendor.read_text("ascii").strip() == _PCI_VENDOR
        and vendor.with_name("class").read_text("ascii").startswith(_PCI_DISPLAY)
        for vendor in devices.glob("*/vendor")
    )


def check_driver(inventory: Inventory, pci_gpus: int) -> Outcome:
    """Check that the driver answers.

    Args:
        inventory: This host.
        pci_gpus: The number of NVIDIA GPUs on the PCI bus.
    """
    fault = next((each for each in inventory.faults if each.where == DRIVER), None)
    if fault is None and (inventory.driver or inventory.gpus):
        cuda = f", CUDA up to {inventory.cuda}" if inventory.cuda else ""
        return ok(short(f"{inventory.driver or 'version unknown'}{cuda}"))
    if fault is not None and fault.status is not Condition.NO_DRIVER:
        return failed(f"{fault.status}: {short(fault.what)}", fault.fix, stops=True)
    if not pci_gpus:
        return skipped("this host has no NVIDIA GPU: tasks train on CPUs", stops=True)
    return warning(
        f"none for the host's {counted(pci_gpus, 'NVIDIA GPU')}",
        "install it with `sudo apt-get install nvidia-driver` "
        "(Ubuntu: `sudo ubuntu-drivers install`), then reboot",
        stops=True,
    )


def check_devices(inventory: Inventory) -> Outcome:
    """Check that every GPU answers, and can be used by a config."""
    alike = Counter((gpu.name, gpu.memory_bytes) for gpu in inventory.gpus)
    what = "; ".join(
        f"{number} {short(name) or 'GPU'} of {memory_for_people(size)}"
        for (name, size), number in alike.items()
    )
    faults = [
        fault
        for fault in inventory.faults
        if fault.where not in {DRIVER, DRIVER_VERSION, CUDA_VERSION}
    ]
    if faults:
        named = "; ".join(f"{fault.where}: {fault.status}" for fault in faults)
        lost = any(fault.status is not Condition.NO_SLICES for fault in faults)
        severity = failed if lost or not inventory.gpus else warning
        return severity(short(f"{what or 'none'}; {named}"), faults[0].fix)
    if not inventory.gpus:
        what = short("; ".join(inventory.left_out) or "the driver finds no GPU")
        return failed(what, "see `nvidia-smi -L`", stops=True)
    return ok("; ".join((what, *inventory.other_notices)))


def check_cuda(inventory: Inventory, nodes: Path = Path("/dev")) -> Outcome:
    """Check that CUDA can start, which frameworks need to use GPUs."""
    fault = next((each for each in inventory.faults if each.where == CUDA_VERSION), None)
    if fault is not None and fault.status is Condition.OTHER:
        return failed(short(fault.what), fault.fix)
    if (nodes / _UVM).exists() or not (nodes / _CONTROL).exists():
        return ok("can start")
    what = f"{nodes / _UVM} is missing, and CUDA may not be allowed to create it"
    return warning(what, "create it with `sudo nvidia-modprobe -u -c=0`")
