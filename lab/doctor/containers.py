"""Checks of GPUs in containers: the container toolkit, CDI, and a trial."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from typing import Final

from lab.doctor.commands import CommandResult, run_command
from lab.doctor.engine import EngineInfo, numbers
from lab.doctor.images import TaskImage
from lab.doctor.model import Outcome, failed, ok, skipped, warning
from lab.formatting import counted
from lab.gpu import Inventory
from lab.text import short

TRIAL_S: Final = 60.0

REMOVE_S: Final = 20.0

TRIAL_LABEL: Final = "lab.trial"

_CDI_ID: Final = re.compile(r"nvidia\.com/gpu=((?:GPU|MIG)-.+)")
"""How the engine lists a GPU of a CDI specification by its UUID; it has further names."""

_USES_CDI_SINCE: Final = (29, 2)
"""The first engine that uses CDI for a request with `driver: nvidia`, if it knows the GPU by CDI:
https://github.com/moby/moby/pull/50228"""

_HOOKS: Final = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")

_INSTALL: Final = (
    "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The parts of NVIDIA's container toolkit on this host.

    Attributes:
        hook: The path of its hook on this host's PATH, or "".
        has_ctk: Whether `nvidia-ctk` is installed.
    """

    hook: str = ""
    has_ctk: bool = False


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
