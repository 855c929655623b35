"""The NVIDIA driver, its cards, and the way of a card into a container."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.doctor.asking import Ask
from lab.doctor.model import Finding, Need, Verdict
from lab.doctor.python import installed
from lab.gpu import Condition, Fault, Inventory
from lab.gpu.model import CUDA_VERSION, DRIVER, DRIVER_VERSION
from lab.task.text import short
from lab.units import memory_for_people

AREA: Final = "GPUs"
TRIAL_S: Final = 60.0
REMOVE_S: Final = 20.0
TRIAL_LABEL: Final = "lab.trial"

CDI_DIRECTORIES: Final = (Path("/etc/cdi"), Path("/var/run/cdi"))
CDI_KIND: Final = "nvidia.com/gpu"
_CDI_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})

# From this version on the engine itself puts the devices of a `driver: nvidia` request into a
# container by their CDI description, where there is one, and the toolkit's hook comes second:
# https://github.com/moby/moby/pull/50228
_ENGINE_WITH_CDI: Final = 29
_UVM: Final = "nvidia-uvm"
"""The device node without which CUDA does not start."""

_CONTROL: Final = "nvidiactl"
"""A node that is there wherever the driver has nodes; on WSL it has none."""

_CUDNN_WHEELS: Final = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
_CUDNN_LIBRARIES: Final = ("libcudnn.so.9", "libcudnn.so.8")
_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_PCI_VENDOR: Final = "0x10de"
_PCI_DISPLAY: Final = "0x03"
_INSTALL: Final = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What there is of NVIDIA's container toolkit.

    Attributes:
        hook: The path of its hook on this machine's PATH, or "".
        has_ctk: Whether `nvidia-ctk` is there.
        cdi_files: Descriptions of NVIDIA cards in the form of CDI.
    """

    hook: str = ""
    has_ctk: bool = False
    cdi_files: tuple[Path, ...] = ()


def driver(found: Inventory | Fault, pci_cards: int, asked: int) -> Finding:
    """Whether the driver answers.

    Args:
        found: This box, or why its driver does not answer.
        pci_cards: NVIDIA's cards on the PCI bus, driver or not.
        asked: GPUs that the description asks for.
    """
    fault = found if isinstance(found, Fault) else _of_driver(found.faults)
    if fault is None and isinstance(found, Inventory) and (found.driver or found.gpus):
        words = [found.driver or "it answers"]
        words += [f"CUDA up to {found.cuda}"] if found.cuda else []
        return _finding("driver", Verdict.OK, short(", ".join(words)))
    if fault is None or fault.condition is Condition.NO_DRIVER:
        if not pci_cards:
            what = "none, and no NVIDIA card on the PCI bus: tasks train on CPUs"
            return _finding("driver", Verdict.WARNING, what, blocks="no card")
        what = f"none for the box's {_many(pci_cards, 'NVIDIA card')}"
        what += f" ({short(fault.detail)})" if fault is not None else ""
        mend = (
            "`sudo apt-get install nvidia-driver` (Ubuntu: `sudo ubuntu-drivers install`), reboot"
        )
        return _finding("driver", Verdict.WARNING, what, mend, "no driver")
    verdict = Verdict.FAILED if asked else Verdict.WARNING
    what = f"{fault.condition}: {short(fault.detail)}"
    return _finding("driver", verdict, what, _mend(fault), str(fault.condition))


def cuda(inventory: Inventory, nodes: Path = Path("/dev")) -> Finding:
    """Whether CUDA, by which TensorFlow uses cards, can start.

    Args:
        inventory: This box.
        nodes: Where its device nodes are.
    """
    fault = next((each for each in inventory.faults if each.where == CUDA_VERSION), None)
    if fault is not None and fault.condition is Condition.OTHER:
        return _finding("CUDA", Verdict.WARNING, short(fault.detail), _mend(fault), "no CUDA")
    if (nodes / _CONTROL).exists() and not (nodes / _UVM).exists():
        what = f"{nodes / _UVM} is not there, and CUDA may not be allowed to make it"
        return _finding("CUDA", Verdict.WARNING, what, "`sudo nvidia-modprobe -u -c=0`")
    return _finding("CUDA", Verdict.OK, "nothing is in its way")


def cards(inventory: Inventory, asked: int) -> Finding:
    """Which cards answer.

    Whether they are enough for the description is said where the description is looked at.

    Args:
        inventory: This box.
        asked: GPUs that the description asks for.
    """
    lost = [
        fault
        for fault in inventory.faults
        if fault.where not in {DRIVER, DRIVER_VERSION, CUDA_VERSION}
        and fault.condition is not Condition.NO_SLICES
    ]
    whole = Counter((gpu.name, gpu.memory_bytes) for gpu in inventory.gpus)
    shown = ", ".join(
        f"{count} {short(name) or 'card'} of {memory_for_people(size)}"
        for (name, size), count in whole.items()
    )
    what = shown or "none"
    if lost:
        verdict = Verdict.FAILED if asked else Verdict.WARNING
        faults = "; ".join(f"{each.where}: {each.condition} ({each.detail})" for each in lost)
        # Only what the description asks for, or a box with no other card, is stopped by a lost one.
        stops = bool(asked) or not inventory.gpus
        blocks = str(lost[0].condition) if stops else ""
        return _finding("cards", verdict, short(f"{what}; {faults}"), _mend(lost[0]), blocks)
    if not inventory.gpus:
        mend = "see `nvidia-smi -L`"
        return _finding("cards", Verdict.WARNING, "the driver knows no card", mend, "no card")
    return _finding("cards", Verdict.OK, what)


def mig(inventory: Inventory) -> Finding:
    """Whether cards are cut into slices that a description can deal with."""
    bare = [fault for fault in inventory.faults if fault.condition is Condition.NO_SLICES]
    if bare:
        where = ", ".join(fault.where for fault in bare)
        index = "".join(filter(str.isdecimal, bare[0].where)) or "0"
        return _finding(
            "MIG",
            Verdict.WARNING,
            f"in MIG mode without slices, so that nothing can use it: {short(where)}",
            f"cut it: `sudo nvidia-smi mig -i {index} -lgip`, then `-cgi PROFILE -C`; "
            f"or make it whole: `sudo nvidia-smi -i {index} -mig 0`",
        )
    slices = sum(gpu.is_slice for gpu in inventory.gpus)
    if not slices:
        return _finding("MIG", Verdict.OK, "no card is cut")
    whole = len(inventory.gpus) - slices
    if whole:
        what = f"{_many(slices, 'slice')}, by UUID, beside {_many(whole, 'whole card')}"
        return _finding("MIG", Verdict.OK, what)
    return _finding("MIG", Verdict.OK, f"all cards are cut: {_many(slices, 'slice')}, by UUID")


def toolkit(
    info: Mapping[str, Any], found: Toolkit, asked: int, *, has_cuda: bool = False
) -> Finding:
    """Whether the engine can hand out cards.

    Args:
        info: What the engine says of itself.
        found: What there is of the toolkit on this machine.
        asked: GPUs that the description asks for.
        has_cuda: Whether cards can be used without containers.
    """
    if uses_cdi(info, found):
        return _finding("container toolkit", Verdict.OK, "by CDI")
    runtime = "nvidia" in (info.get("Runtimes") or {})
    if runtime or found.hook:
        what = "the runtime `nvidia`" if runtime else f"the hook {found.hook}"
        return _finding("container toolkit", Verdict.OK, what)
    configure = (
        "`sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker`"
    )
    if found.has_ctk:
        what, mend = "installed, but the engine does not know it", configure
    else:
        what = "not installed: the engine cannot hand out cards"
        mend = f"install it, {_INSTALL}, then {configure}"
    if has_cuda:
        return _finding("container toolkit", Verdict.WARNING, what, mend)
    verdict = Verdict.FAILED if asked else Verdict.WARNING
    return _finding("container toolkit", verdict, what, mend, "no container toolkit")


def toolkit_unseen() -> Finding:
    """What there is to say of a toolkit that left no trace here, and yet handed out a card."""
    return _finding("container toolkit", Verdict.OK, "only the engine sees it, but it works")


def uses_cdi(info: Mapping[str, Any], found: Toolkit) -> bool:
    """Whether the engine puts cards into containers by itself, as CDI describes them."""
    version = str(info.get("ServerVersion", "")).partition(".")[0]
    known = [str(each.get("ID", "")) for each in info.get("DiscoveredDevices") or ()]
    described = bool(found.cdi_files) or any(each.startswith(CDI_KIND) for each in known)
    recent = version.isdecimal() and int(version) >= _ENGINE_WITH_CDI
    return recent and described and bool(info.get("CDISpecDirs"))


def daemon_reload(info: Mapping[str, Any], found: Toolkit) -> Finding:
    """Whether `systemctl daemon-reload` takes running containers' cards away.

    Under the cgroup driver systemd it is systemd that keeps a container's list of devices. What
    the toolkit's hook adds to it behind systemd's back is lost as soon as systemd writes the list
    anew: at a daemon-reload, which any update of a package may bring about. NVML in the container
    then says `Unknown Error`. https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    """
    name = "daemon-reload"
    if info.get("CgroupDriver") != "systemd":
        what = f"harmless: devices are kept by {short(str(info.get('CgroupDriver')))}"
        return _finding(name, Verdict.OK, what)
    if uses_cdi(info, found):
        return _finding(name, Verdict.OK, "harmless: systemd knows the devices, by CDI")
    return _finding(
        name,
        Verdict.WARNING,
        "`systemctl daemon-reload`, also by a package's update, takes the cards from running "
        "containers: the engine's cgroup driver is systemd, and the toolkit adds devices that "
        "systemd does not know",
        'set `"exec-opts": ["native.cgroupdriver=cgroupfs"]` in /etc/docker/daemon.json, then '
        "`sudo systemctl restart docker`; or use CDI, which Engine 29 does by itself after "
        "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    )


def trial(uuid: str, image: str | None, ask: Ask) -> Finding:
    """Whether a container that was promised a card sees it, and no other.

    The container has no network and is removed, whatever happens.

    Args:
        uuid: The card's.
        image: An image that the engine has, or None.
        ask: Runs a command.
    """
    if image is None:
        what = "no image to try a card in; build one with `lab build`, then ask again"
        return _finding("trial container", Verdict.SKIPPED, what)
    name = f"lab-trial-{os.getpid()}"
    answer = ask(
        [
            *("docker", "run", "--rm", "--pull", "never", "--network", "none", "--name", name),
            *("--label", f"{TRIAL_LABEL}={os.getpid()}", "--user", "1000:1000", "--read-only"),
            *("--gpus", f'device={uuid},"capabilities=compute,utility"'),
            *("--entrypoint", "nvidia-smi", image, "-L"),
        ],
        TRIAL_S,
    )
    if answer.code is None:
        # The command's end is not the container's.
        ask(["docker", "rm", "--force", "--volumes", name], REMOVE_S)
        what, mend = f"it did not end within {TRIAL_S:.0f} s", "see the engine's log"
        return _finding("trial container", Verdict.FAILED, what, mend, "no card in a container")
    if answer.code != 0:
        # Imported here: it belongs to a backend, whose packages may be missing.
        from lab.backends.compose.mends import explain  # noqa: PLC0415

        error = explain("trying a card", answer.err.splitlines() or answer.out.splitlines())
        what = error.what.removeprefix("trying a card: ")
        mend = error.mend or "see the engine's log, `journalctl -u docker`"
        return _finding("trial container", Verdict.FAILED, what, mend, "no card in a container")
    seen = [line for line in answer.out.splitlines() if "UUID: " in line]
    if len([line for line in seen if not line.startswith(" ")]) == 1 and uuid in answer.out:
        return _finding("trial container", Verdict.OK, f"{image} sees {uuid}, and no other card")
    what = f"{image} was promised {uuid} and sees {len(seen) or 'no'} cards"
    mend = "see `sudo nvidia-container-cli --debug=/dev/stderr info`; reinstall the toolkit"
    return _finding("trial container", Verdict.FAILED, what, mend, "no card in a container")


def further(why: str) -> Finding:
    """What stands for all the checks that need a card."""
    return _finding("further checks", Verdict.SKIPPED, why)


def cuda_locally(*, has_cuda: bool, has_cudnn: bool, has_engine: bool) -> Finding:
    """What the local backend can do with cards."""
    if has_cuda and not has_cudnn:
        return _finding(
            "local backend",
            Verdict.WARNING,
            "its TensorFlow was built for CUDA, but cuDNN is not installed: it trains on CPUs",
            "`pip install 'tensorflow[and-cuda]==2.21.*'` into this Python",
            "" if has_engine else "no cuDNN",
        )
    if has_cuda:
        return _finding("local backend", Verdict.OK, "its TensorFlow was built for CUDA")
    if has_engine:
        what = "its TensorFlow was built for CPUs; containers have one for CUDA"
        return _finding("local backend", Verdict.OK, what)
    return _finding(
        "local backend",
        Verdict.WARNING,
        "its TensorFlow was built for CPUs, and there is no engine for containers",
        "install Docker Engine, or here `pip install 'tensorflow[and-cuda]==2.21.*'`",
        "no CUDA",
    )


# ---- Facts of this machine


def look(survey: Callable[[], Inventory]) -> Inventory | Fault:
    """The box, or why its driver does not answer."""
    from lab.gpu import NvmlError  # noqa: PLC0415

    try:
        return survey()
    except NvmlError as error:
        return error.fault


def find_cudnn(
    version_of: Callable[[str], str | None] = installed,
    libraries: Sequence[str] = _CUDNN_LIBRARIES,
) -> bool:
    """Whether this Python, or the system, has cuDNN."""
    if any(version_of(wheel) is not None for wheel in _CUDNN_WHEELS):
        return True
    for library in libraries:
        try:
            ctypes.CDLL(library)
        except OSError:
            continue
        return True
    return False


def pci_cards(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """NVIDIA's cards on the PCI bus, whether or not a driver knows them."""
    count = 0
    for device in devices.iterdir() if devices.is_dir() else ():
        try:
            vendor = (device / "vendor").read_text("ascii").strip()
            kind = (device / "class").read_text("ascii").strip()
        except OSError:
            continue  # it was unplugged a moment ago
        count += vendor == _PCI_VENDOR and kind.startswith(_PCI_DISPLAY)
    return count


def find_toolkit(directories: Sequence[Path] = CDI_DIRECTORIES) -> Toolkit:
    """What there is of the toolkit on this machine."""
    files = []
    for directory in directories:
        if not directory.is_dir() or not os.access(directory, os.R_OK | os.X_OK):
            continue
        for file in sorted(directory.iterdir()):
            readable = file.suffix in _CDI_SUFFIXES and os.access(file, os.R_OK)
            if readable and CDI_KIND in file.read_text("utf-8", "replace"):
                files.append(file)
    hook = next(filter(None, map(shutil.which, _HOOKS)), "")
    return Toolkit(hook, shutil.which("nvidia-ctk") is not None, tuple(files))


def _of_driver(faults: Sequence[Fault]) -> Fault | None:
    return next((fault for fault in faults if fault.where == DRIVER), None)


def _mend(fault: Fault) -> str:
    """The commands for what the inventory says in words."""
    commands = {
        Condition.MISMATCH: "`sudo reboot`: the driver was updated while its old module is loaded",
        Condition.NO_PERMISSION: "`ls -l /dev/nvidia*` shows who may; "
        "`sudo usermod -aG video,render $USER`, then log in again",
        Condition.CARD_LOST: "`sudo dmesg | grep Xid` says why; then `sudo reboot`",
    }
    return commands.get(fault.condition, fault.mend)


def _finding(name: str, verdict: Verdict, what: str, mend: str = "", blocks: str = "") -> Finding:
    return Finding(AREA, name, verdict, what, mend, Need.GPUS, blocks)


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
