"""Checks of the NVIDIA driver and its GPUs, and whether TensorFlow works with them."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.doctor.python import installed
from lab.doctor.resources import text_of
from lab.formatting import counted
from lab.gpu import Condition, Fault, Inventory, NvmlError, read_host
from lab.gpu.model import CUDA_VERSION, DRIVER, DRIVER_VERSION
from lab.gpu.support import Support, build_of, by_gpus
from lab.runtimes import TENSORFLOW
from lab.text import short
from lab.units import memory_for_people

NVML_S: Final = 30.0
"""Time limit of the driver in seconds; NVML calls have their own limit of 20 s."""


_UVM: Final = Path("/dev/nvidia-uvm")
"""The device node that CUDA needs to start."""

_CONTROL: Final = "nvidiactl"
"""A node that exists if the driver has nodes; on WSL it has none."""

_CUDNN_WHEELS: Final = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
_CUDNN_LIBRARIES: Final = ("libcudnn.so.9", "libcudnn.so.8")


_PCI_VENDOR: Final = "0x10de"
_PCI_DISPLAY: Final = "0x03"
_FIXES: Final = {
    Condition.MISMATCH: "`sudo reboot`: the driver was updated while its old module is loaded",
    Condition.NO_PERMISSION: "join the group that `ls -l /dev/nvidia*` shows: "
    "`sudo usermod -aG video,render $USER`, then log in again",
    Condition.GPU_LOST: "see `sudo dmesg | grep Xid`, then `sudo reboot`",
}
"""Hints of the doctor that replace those of the inventory."""


def read_nvml() -> Inventory | Fault:
    """Return the inventory of this host, or why its driver does not answer."""
    try:
        return read_host()
    except NvmlError as error:
        return error.fault


def inventory(nvml: Inventory | Fault, cpus: int, memory: tuple[int, int]) -> Inventory:
    """Return the inventory of this host, without GPUs if the driver does not answer."""
    return nvml if isinstance(nvml, Inventory) else Inventory("none", (), cpus, memory[0])


def pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """Return the number of NVIDIA GPUs on the PCI bus, with or without a driver."""
    return sum(
        text_of(device / "vendor") == _PCI_VENDOR
        and text_of(device / "class").startswith(_PCI_DISPLAY)
        for device in devices.glob("*")
    )


def judge_driver(nvml: Inventory | Fault, pci_gpus: int, requested_gpus: int) -> Outcome:
    """Check that the driver answers.

    Args:
        nvml: The inventory of this host, or why its driver does not answer.
        pci_gpus: The number of NVIDIA GPUs on the PCI bus.
        requested_gpus: The number of GPUs that the config asks for.
    """
    fault: Fault | None
    if isinstance(nvml, Fault):
        fault = nvml
    else:
        fault = next((each for each in nvml.faults if each.where == DRIVER), None)
        if fault is None and (nvml.driver or nvml.gpus):
            cuda = f", CUDA up to {nvml.cuda}" if nvml.cuda else ""
            return ok(short(f"{nvml.driver or 'version unknown'}{cuda}"))
    if fault is None or fault.status is Condition.NO_DRIVER:
        if not pci_gpus:
            what = "none, and no NVIDIA GPU on the PCI bus: tasks train on CPUs"
            return warning(what, blocks="no GPU", stops=True)
        what = f"none for the host's {counted(pci_gpus, 'NVIDIA GPU')}"
        what += f" ({short(fault.what)})" if fault is not None else ""
        fix = (
            "install it with `sudo apt-get install nvidia-driver` "
            "(Ubuntu: `sudo ubuntu-drivers install`), then reboot"
        )
        return warning(what, fix, "no driver", stops=True)
    severity = failed if requested_gpus else warning
    what = f"{fault.status}: {short(fault.what)}"
    return severity(what, _fix(fault), str(fault.status), stops=True)


def judge_gpus(inventory: Inventory, requested_gpus: int) -> Outcome:
    """List the GPUs that answer.

    The check of the config reports whether they are enough.

    Args:
        inventory: This host.
        requested_gpus: The number of GPUs that the config asks for.
    """
    lost = [
        fault
        for fault in inventory.faults
        if fault.where not in {DRIVER, DRIVER_VERSION, CUDA_VERSION}
        and fault.status is not Condition.NO_SLICES
    ]
    alike = Counter((gpu.name, gpu.memory_bytes) for gpu in inventory.gpus)
    shown = ", ".join(
        f"{number} {short(name) or 'GPU'} of {memory_for_people(size)}"
        for (name, size), number in alike.items()
    )
    none = not inventory.gpus
    if lost:
        faults = "; ".join(f"{each.where}: {each.status} ({each.what})" for each in lost)
        # A lost GPU matters if the config asks for GPUs, or if the host has no other GPU.
        blocks = str(lost[0].status) if requested_gpus or none else ""
        severity = failed if requested_gpus else warning
        return severity(short(f"{shown or 'none'}; {faults}"), _fix(lost[0]), blocks, stops=none)
    if none:
        what = "; ".join(inventory.left_out) or "the driver finds no GPU"
        return warning(what, "see `nvidia-smi -L`", "no GPU", stops=True)
    return ok("; ".join((shown, *inventory.other_notices)))


def judge_mig(inventory: Inventory) -> Outcome:
    """Check that every GPU in MIG mode has slices that a config can use."""
    bare = [fault.where for fault in inventory.faults if fault.status is Condition.NO_SLICES]
    if bare:
        index = "".join(filter(str.isdecimal, bare[0])) or "0"
        return warning(
            f"in MIG mode without slices, and therefore unusable: {short(', '.join(bare))}",
            f"create slices: `sudo nvidia-smi mig -i {index} -lgip`, then `-cgi PROFILE -C`; "
            f"or disable MIG: `sudo nvidia-smi -i {index} -mig 0`",
        )
    slices = sum(gpu.is_slice for gpu in inventory.gpus)
    if not slices:
        return ok("no GPU has slices")
    whole = len(inventory.gpus) - slices
    shown = f"{counted(slices, 'slice')}, by UUID"
    return ok(f"{shown}, and {counted(whole, 'whole GPU')}" if whole else f"{shown}, on all GPUs")


def has_uvm(nodes: Path = _UVM.parent) -> bool:
    """Whether the device node that CUDA needs exists, or the driver uses no nodes."""
    return (nodes / _UVM.name).exists() or not (nodes / _CONTROL).exists()


def judge_cuda(inventory: Inventory, has_uvm: bool) -> Outcome:
    """Check that CUDA can start, which TensorFlow needs to use GPUs."""
    fault = next((each for each in inventory.faults if each.where == CUDA_VERSION), None)
    if fault is not None and fault.status is Condition.OTHER:
        return warning(short(fault.what), _fix(fault), "no CUDA")
    if has_uvm:
        return ok("can start")
    what = f"{_UVM} is missing, and CUDA may not be allowed to create it"
    return warning(what, "create it with `sudo nvidia-modprobe -u -c=0`")


def find_cudnn(
    version_of: Callable[[str], str | None] = installed,
    libraries: Sequence[str] = _CUDNN_LIBRARIES,
) -> bool:
    """Whether this Python or the system has cuDNN."""
    if any(version_of(wheel) is not None for wheel in _CUDNN_WHEELS):
        return True
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False


def judge_local_backend(cuda: str, has_cudnn: bool, has_engine: bool) -> Outcome:
    """Check that the local backend can use GPUs.

    Args:
        cuda: The CUDA version of its TensorFlow; "" if that was built for CPUs.
        has_cudnn: Whether cuDNN is installed.
        has_engine: Whether the compose backend can run containers.
    """
    if cuda and has_cudnn:
        return ok("its TensorFlow was built for CUDA")
    if cuda:
        return warning(
            "its TensorFlow was built for CUDA, but cuDNN is not installed: it trains on CPUs",
            "`pip install 'tensorflow[and-cuda]==2.21.*'` into this Python",
            "" if has_engine else "no cuDNN",
        )
    if has_engine:
        return ok("its TensorFlow was built for CPUs; in containers it is built for CUDA")
    return warning(
        "its TensorFlow was built for CPUs, and there is no engine for containers",
        "install Docker Engine, or `pip install 'tensorflow[and-cuda]==2.21.*'` into this Python",
        "no CUDA",
    )


def _fix(fault: Fault) -> str:
    return _FIXES.get(fault.status, fault.fix)


def judge_support(inventory: Inventory, environ: Mapping[str, str]) -> Outcome:
    """Check that the GPUs are recent enough for TensorFlow.

    Args:
        inventory: This host.
        environ: The environment variables: they may name another TensorFlow.
    """
    build = build_of(TENSORFLOW.name, environ)
    found = by_gpus(inventory.gpus, build)
    problems = sorted(
        (each for each in found if each.status is not Support.WORKS),
        key=lambda each: each.status is not Support.TOO_OLD,
    )
    if build is None:
        return skipped(problems[0].what if problems else "no GPU")
    if not problems:
        return ok(f"TensorFlow {build.tensorflow} works with all GPUs")
    worst = problems[0]
    what = "; ".join(f"{each.where}: {each.what}" for each in problems)
    if worst.status is Support.UNKNOWN:
        return skipped(what)
    if any(each.status is not Support.TOO_OLD for each in found):  # one GPU that works is enough
        return warning(what, worst.fix)
    return warning(what, worst.fix, "GPU too old")
