"""Checks of the NVIDIA driver, its GPUs, and the container toolkit."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.doctor.commands import CommandResult, run_command
from lab.doctor.engine import EngineInfo, TaskImage, numbers
from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.doctor.python import installed
from lab.doctor.resources import text_of
from lab.formatting import counted
from lab.gpu import Condition, Fault, Inventory, NvmlError, read_host
from lab.gpu.model import CUDA_VERSION, DRIVER, DRIVER_VERSION
from lab.text import short
from lab.units import memory_for_people

NVML_S: Final = 30.0
"""Time limit of the driver in seconds; NVML calls have their own limit of 20 s."""

TRIAL_S: Final = 60.0
REMOVE_S: Final = 20.0
TRIAL_LABEL: Final = "lab.trial"

_UVM: Final = Path("/dev/nvidia-uvm")
"""The device node that CUDA needs to start."""

_CONTROL: Final = "nvidiactl"
"""A node that exists if the driver has nodes; on WSL it has none."""

_CUDNN_WHEELS: Final = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
_CUDNN_LIBRARIES: Final = ("libcudnn.so.9", "libcudnn.so.8")
_CDI_ID: Final = re.compile(r"nvidia\.com/gpu=((?:GPU|MIG)-.+)")
"""How the engine lists a GPU of a CDI specification by its UUID; it has further names."""

_USES_CDI_SINCE: Final = (29, 2)
"""The first engine that uses CDI for a request with `driver: nvidia`, if it knows the GPU by CDI:
https://github.com/moby/moby/pull/50228"""

_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_PCI_VENDOR: Final = "0x10de"
_PCI_DISPLAY: Final = "0x03"
_INSTALL: Final = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)
_FIXES: Final = {
    Condition.MISMATCH: "`sudo reboot`: the driver was updated while its old module is loaded",
    Condition.NO_PERMISSION: "join the group that `ls -l /dev/nvidia*` shows: "
    "`sudo usermod -aG video,render $USER`, then log in again",
    Condition.GPU_LOST: "see `sudo dmesg | grep Xid`, then `sudo reboot`",
}
"""Hints of the doctor that replace those of the inventory."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The parts of NVIDIA's container toolkit on this host.

    Attributes:
        hook: The path of its hook on this host's PATH, or "".
        has_ctk: Whether `nvidia-ctk` is installed.
    """

    hook: str = ""
    has_ctk: bool = False


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
    if fault is None or fault.condition is Condition.NO_DRIVER:
        if not pci_gpus:
            what = "none, and no NVIDIA GPU on the PCI bus: tasks train on CPUs"
            return warning(what, blocks="no GPU", stops=True)
        what = f"none for the host's {counted(pci_gpus, 'NVIDIA GPU')}"
        what += f" ({short(fault.detail)})" if fault is not None else ""
        fix = (
            "install it with `sudo apt-get install nvidia-driver` "
            "(Ubuntu: `sudo ubuntu-drivers install`), then reboot"
        )
        return warning(what, fix, "no driver", stops=True)
    severity = failed if requested_gpus else warning
    what = f"{fault.condition}: {short(fault.detail)}"
    return severity(what, _fix(fault), str(fault.condition), stops=True)


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
        and fault.condition is not Condition.NO_SLICES
    ]
    alike = Counter((gpu.name, gpu.memory_bytes) for gpu in inventory.gpus)
    shown = ", ".join(
        f"{number} {short(name) or 'GPU'} of {memory_for_people(size)}"
        for (name, size), number in alike.items()
    )
    none = not inventory.gpus
    if lost:
        faults = "; ".join(f"{each.where}: {each.condition} ({each.detail})" for each in lost)
        # A lost GPU matters if the config asks for GPUs, or if the host has no other GPU.
        blocks = str(lost[0].condition) if requested_gpus or none else ""
        severity = failed if requested_gpus else warning
        return severity(short(f"{shown or 'none'}; {faults}"), _fix(lost[0]), blocks, stops=none)
    if none:
        what = "; ".join(inventory.left_out) or "the driver finds no GPU"
        return warning(what, "see `nvidia-smi -L`", "no GPU", stops=True)
    return ok("; ".join((shown, *inventory.other_notices)))


def judge_mig(inventory: Inventory) -> Outcome:
    """Check that every GPU in MIG mode has slices that a config can use."""
    bare = [fault.where for fault in inventory.faults if fault.condition is Condition.NO_SLICES]
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
    if fault is not None and fault.condition is Condition.OTHER:
        return warning(short(fault.detail), _fix(fault), "no CUDA")
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


def find_toolkit() -> Toolkit:
    """Find the parts of the toolkit on this host."""
    hook = next(filter(None, map(shutil.which, _HOOKS)), "")
    return Toolkit(hook, shutil.which("nvidia-ctk") is not None)


def cdi_gpus(engine_info: EngineInfo) -> frozenset[str] | None:
    """Return the UUIDs of NVIDIA's GPUs and slices that the engine knows by CDI.

    None: it lists no such device. Engine 28.2 and later list them.
    """
    found = [str(each.get("ID")) for each in engine_info.info.get("DiscoveredDevices") or ()]
    if not any(each.startswith("nvidia.com/gpu=") for each in found):
        return None
    return frozenset(match[1] for each in found if (match := _CDI_ID.fullmatch(each)))


def uses_cdi(engine_info: EngineInfo) -> bool:
    """Whether the engine adds GPUs to containers by CDI; otherwise it uses the toolkit's hook."""
    if engine_info.is_podman:
        return True
    version = numbers(str(engine_info.info.get("ServerVersion", "")))
    return version >= _USES_CDI_SINCE and cdi_gpus(engine_info) is not None


def judge_cdi(inventory: Inventory, engine_info: EngineInfo, uses_cdi: bool) -> Outcome:
    """Check that the engine knows the GPUs and slices of this host by CDI, and no others.

    A CDI specification is a file with the device nodes of each GPU. NVIDIA's toolkit does not write
    it again after slices have changed:
    https://github.com/NVIDIA/nvidia-container-toolkit/issues/1828

    Args:
        inventory: This host.
        engine_info: What the engine reports.
        uses_cdi: Whether the engine adds GPUs by CDI.
    """
    known = cdi_gpus(engine_info)
    if not engine_info.is_local:
        return skipped("not checked: the engine runs on another host")
    if known is None:
        return skipped("not checked: the engine lists no GPUs of a CDI specification")
    # `lab` pins GPUs by UUID, so other names do not matter.
    ids = (gpu.device_id for gpu in inventory.gpus)
    host = {each for each in ids if each.startswith(("GPU-", "MIG-"))}
    missing = host - known
    extra = known - host - {gpu.slice_of for gpu in inventory.gpus}
    faults = [f"lacks {short(', '.join(sorted(missing)))}"] if missing else []
    if extra and not inventory.left_out:  # GPUs that are left out are not in the inventory
        faults.append(f"has {short(', '.join(sorted(extra)))}, which this host does not have")
    if not faults:
        return ok(f"the engine knows {counted(len(host), 'GPU')} of this host")
    what = f"the engine's list {'; '.join(faults)}"
    if not uses_cdi:
        return ok(f"{what}; this engine does not use it")
    return warning(
        f"{what}: containers may not start, or get another GPU",
        "write the CDI specification again: `sudo systemctl restart nvidia-cdi-refresh`; without "
        "this service: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    )


def judge_toolkit(
    engine_info: EngineInfo,
    toolkit: Toolkit,
    *,
    uses_cdi: bool,
    requested_gpus: int,
    has_cudnn: bool,
    trial: Trial,
) -> Outcome:
    """Check that the engine can give GPUs to containers.

    Args:
        engine_info: What the engine reports.
        toolkit: The parts of the toolkit on this host.
        uses_cdi: Whether the engine adds GPUs by CDI.
        requested_gpus: The number of GPUs that the config asks for.
        has_cudnn: Whether GPUs can be used without containers.
        trial: The trial of a container with a GPU. If it passed, the toolkit works, even if it is
            not found on this host: the engine may have another PATH.
    """
    if uses_cdi:
        return ok("the engine uses CDI")
    if "nvidia" in (engine_info.info.get("Runtimes") or {}):
        return ok("the engine has the runtime `nvidia`")
    if toolkit.hook:
        return ok(f"the hook {toolkit.hook} is installed")
    if trial.passed:
        return ok("not found on this host, but a container gets GPUs")
    fix = "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
    what = "installed, but not configured in the engine"
    if not toolkit.has_ctk:
        what, fix = (
            "not installed: the engine cannot give GPUs to containers",
            f"install it ({_INSTALL}), then {fix}",
        )
    if engine_info.is_rootless:
        fix += "; or use CDI: `sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
    if has_cudnn:
        return warning(what, fix, stops=True)
    severity = failed if requested_gpus else warning
    return severity(what, fix, "no container toolkit", stops=True)


def judge_daemon_reload(engine_info: EngineInfo, uses_cdi: bool) -> Outcome:
    """Check that `systemctl daemon-reload` does not remove GPUs from running containers.

    With the cgroup driver systemd, systemd keeps the list of a container's devices. It does not
    know the devices that the toolkit's hook adds. A daemon-reload, for example by a package update,
    writes the list again without these devices. NVML in the container then reports `Unknown Error`:
    https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    if engine_info.is_rootless:
        return ok("harmless: a rootless engine does not limit devices")
    driver = engine_info.info.get("CgroupDriver")
    if driver != "systemd":
        return ok(f"harmless: the engine's cgroup driver is {short(str(driver))}")
    if uses_cdi:
        return ok("harmless: with CDI, systemd knows the devices")
    return warning(
        "`systemctl daemon-reload`, also by a package update, removes the GPUs from running "
        "containers: the engine's cgroup driver is systemd, which does not know the devices that "
        "the toolkit adds",
        'set `"exec-opts": ["native.cgroupdriver=cgroupfs"]` in /etc/docker/daemon.json, then '
        "`sudo systemctl restart docker`; or use Engine 29.2 with CDI: "
        "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """The trial of a container with one GPU.

    Attributes:
        uuid: The GPU.
        image: An image that the engine has; None if there is no image, and so no trial.
        result: The result of `nvidia-smi -L` in the container.
    """

    uuid: str
    image: str | None
    result: CommandResult

    @property
    def passed(self) -> bool:
        """Whether the container saw this GPU and no other."""
        lines = [each for each in self.result.out.splitlines() if "UUID: " in each]
        whole = [line for line in lines if not line.startswith(" ")]
        return self.result.code == 0 and len(whole) == 1 and self.uuid in self.result.out


def try_gpu(uuid: str, image: TaskImage | None, *, is_podman: bool = False) -> Trial:
    """Start a container with one GPU, and list the GPUs that it sees.

    The container has no network and is always removed. Podman ignores the option `--gpus`.
    """
    if image is None or not image.is_here:
        return Trial(uuid, None, CommandResult(None))
    name = f"lab-trial-{os.getpid()}"
    request = ("--gpus", f'device={uuid},"capabilities=compute,utility"')
    if is_podman:
        request = ("--device", f"nvidia.com/gpu={uuid}")
    result = run_command(
        [
            *("docker", "run", "--rm", "--pull", "never", "--network", "none", "--name", name),
            *("--label", f"{TRIAL_LABEL}={os.getpid()}", "--user", "1000:1000", "--read-only"),
            *request,
            *("--entrypoint", "nvidia-smi", image.name, "-L"),
        ],
        TRIAL_S,
    )
    if result.code is None:
        # The container may still run after the command has ended.
        run_command(["docker", "rm", "--force", "--volumes", name], REMOVE_S)
    return Trial(uuid, image.name, result)


def judge_trial(trial: Trial) -> Outcome:
    """Check that a container with one GPU sees this GPU and no other."""
    uuid, image, result = trial.uuid, trial.image, trial.result
    if image is None:
        return skipped("no image for a trial; build one with `lab build`")
    if trial.passed:
        return ok(f"{image} sees {uuid} and no other GPU")
    if result.code is None:
        what = f"the container did not end within {TRIAL_S:.0f} s"
        fix = "see the engine's log, `journalctl -u docker`"
    elif result.code == 0:
        seen = result.out.count("UUID: ")
        what = f"{image} got {uuid}, but sees {counted(seen, 'GPU') if seen else 'no GPUs'}"
        fix = "see `sudo nvidia-container-cli --debug=/dev/stderr info`, and reinstall the toolkit"
    else:
        # Imported here: packages of this backend may be missing.
        from lab.backends.engine.error_hints import explain  # noqa: PLC0415

        error = explain("trying a GPU", result.err.splitlines() or result.out.splitlines())
        what = error.what.removeprefix("trying a GPU: ")
        fix = error.fix or "see the engine's log, `journalctl -u docker`"
    return failed(what, fix, "no GPU in a container")


def _fix(fault: Fault) -> str:
    return _FIXES.get(fault.condition, fault.fix)
