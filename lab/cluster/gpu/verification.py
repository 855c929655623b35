"""The check of a task's GPUs: compares those that NVML shows inside the task with the plan."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from lab.base.errors import Finding, LabError
from lab.base.formatting import counted
from lab.base.text import short
from lab.cluster.gpu.values import Gpu
from lab.protocol.volume.files import from_json

_BOOT_AGAIN: Final = "boot it again; if that does not help, run `lab doctor`"

_RESTART: Final = (
    "restart its container (`docker restart`), or run `lab down` and `lab up`; to prevent it after"
    " each `systemctl daemon-reload`, set the engine to the cgroupfs driver or CDI"
)

_NO_ANSWER: Final = "check `nvidia-smi` and `dmesg | grep Xid` on the host, then reboot"

_FILE_MODE: Final = (
    "let every user open the GPUs: set NVreg_DeviceFileMode=0666 in the driver's options"
)

_REBOOT: Final = "reboot the host: its driver and the driver's library differ"

_NVML_HINTS: Final = {
    "4": _FILE_MODE,
    "17": _FILE_MODE,
    "18": _REBOOT,
    "999": _RESTART,  # the engine's device cgroup refuses the GPU
}
"""NVML's code for a GPU that it does not show → the hint."""

_CUDA_FAILS: Final = (
    "check `nvidia-smi` and `dmesg | grep -i nvrm` on the host, and run `lab doctor`"
)

_CUDA_HINTS: Final = {
    "802": "start the fabric manager on the host: `sudo systemctl start nvidia-fabricmanager`",
    "803": _REBOOT,
    "804": "update the NVIDIA driver",
    "999": "run `sudo nvidia-modprobe -u -c=0` on the host, else check `dmesg`",
}
"""CUDA's code for a driver that cannot start → the hint."""

_HINTS: Final = {"NVML": (_NVML_HINTS, _NO_ANSWER), "CUDA": (_CUDA_HINTS, _CUDA_FAILS)}

_CODE: Final = re.compile(r"error (\d+) \(")

_MAX_NAMES: Final = 3
"""The maximum number of tasks in a line; more are counted."""


@dataclass(frozen=True, slots=True)
class GpuView:
    """The answer of `lab.task.node.gpu_probe` for a task.

    Attributes:
        given: UUIDs that its container has; None for a process of the host.
        seen: UUIDs that its variables allow of them; None if NVML does not answer.
        driver: Whether the driver's library is there.
        nvml: Why NVML does not answer, or does not show a GPU; or "".
        cuda: Why CUDA's driver cannot start, or "".
        why: Why the task could not be probed, or "".
    """

    given: tuple[str, ...] | None = None
    seen: tuple[str, ...] | None = None
    driver: bool = True
    nvml: str = ""
    cuda: str = ""
    why: str = ""

    @classmethod
    def from_json(cls, text: str) -> GpuView:
        """Parse the output of `lab.task.node.gpu_probe`.

        Raises:
            ValueError: The text is not a GPU report.
        """
        return from_json(text, cls, "GPU report")


class GpuStatus(StrEnum):
    """The result of a check."""

    PROVED = "proved"
    MISMATCH = "mismatch"
    LOST = "lost"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        """Whether nothing contradicts the plan."""
        return self not in {GpuStatus.MISMATCH, GpuStatus.LOST}


@dataclass(frozen=True, slots=True)
class GpuCheck(Finding[GpuStatus]):
    """The check of one task's GPUs.

    `what` is, for example, `planned GPU-b…, sees GPU-c…`, or why nothing is proved. There is a fix
    if the task does not have its planned GPUs.

    Attributes:
        planned: Device ids of the planned GPUs.
        seen: Device ids that NVML shows; None if it shows none because it does not answer.
    """

    planned: tuple[str, ...] = ()
    seen: tuple[str, ...] | None = None


def check_gpus(
    planned: tuple[str, ...],
    view: GpuView,
    uuids: Mapping[str, str] | None = None,
    *,
    host_has_driver: bool = False,
) -> GpuCheck:
    """Compare the planned GPUs of a task with the GPUs that it sees.

    Args:
        planned: Device ids: UUIDs, or indices as text.
        view: What the task sees.
        uuids: Index as text to the UUID of that GPU on this host.
        host_has_driver: Whether a driver manages GPUs of this host: then a task with GPUs must have
            it, too.
    """
    if view.seen is None:
        return _without_answer(planned, view, host_has_driver=host_has_driver)
    expected = _normalized((uuids or {}).get(gpu, gpu) for gpu in planned)
    unnamed = any(gpu.isdecimal() for gpu in expected)
    for shown in (view.given, view.seen):
        if shown is None:
            continue
        seen = _normalized(shown)
        if len(seen) == len(expected) if unnamed else seen == expected:
            continue
        if view.nvml and set(seen) < set(expected):
            return _lost(planned, "NVML", view.nvml)
        text = f"planned {_ids(planned)}, sees {_ids(shown)}"
        return GpuCheck(GpuStatus.MISMATCH, text, _BOOT_AGAIN, planned=planned, seen=shown)
    if planned and view.cuda:
        return _lost(planned, "CUDA", view.cuda)
    if unnamed:
        reason = "the number is as planned; the UUIDs of the host's GPUs are unknown here"
        return GpuCheck(GpuStatus.UNKNOWN, reason, planned=planned, seen=view.seen)
    return GpuCheck(GpuStatus.PROVED, planned=planned, seen=planned)


def _without_answer(planned: tuple[str, ...], view: GpuView, *, host_has_driver: bool) -> GpuCheck:
    if planned and view.nvml:
        return _lost(planned, "NVML", view.nvml)
    if view.driver:
        return GpuCheck(GpuStatus.UNKNOWN, short(view.nvml or view.why, 120), planned=planned)
    if not planned:  # no program can use a GPU
        return GpuCheck(GpuStatus.PROVED, planned=planned, seen=())
    reason = "no NVIDIA driver in the task"
    if host_has_driver:
        text = f"planned {_ids(planned)}, sees none: {reason}"
        return GpuCheck(GpuStatus.MISMATCH, text, _BOOT_AGAIN, planned=planned, seen=())
    return GpuCheck(GpuStatus.UNKNOWN, reason, planned=planned)


def _lost(planned: tuple[str, ...], source: str, why: str) -> GpuCheck:
    """Return the check of a task that was given its GPUs and cannot use them.

    Without this check, a program would train on CPUs silently.
    """
    code = _CODE.search(why)
    text = f"planned {_ids(planned)}, but cannot use it: {source} reports: {short(why, 120)}"
    hints, default = _HINTS[source]
    fix = hints.get(code[1], default) if code else default
    return GpuCheck(GpuStatus.LOST, text, fix, planned=planned, seen=())


def check_all(
    views: Mapping[str, GpuView], planned: Mapping[str, tuple[str, ...]], gpus: Sequence[Gpu]
) -> dict[str, GpuCheck]:
    """Check the GPUs of several tasks.

    Args:
        views: Task to what it sees.
        planned: Task to device ids; a missing task has no planned GPU.
        gpus: The GPUs of this host.
    """
    uuids = {str(gpu.index): gpu.device_id for gpu in gpus if not gpu.is_slice}
    minors = [gpu.minor for gpu in gpus if gpu.minor is not None]
    has_driver = any(Path(f"/dev/nvidia{minor}").exists() for minor in minors)
    return {
        name: replace(
            check_gpus(planned.get(name, ()), view, uuids, host_has_driver=has_driver), where=name
        )
        for name, view in views.items()
    }


def raise_for_faults(checks: Mapping[str, GpuCheck]) -> None:
    """Raise an error for the first task whose GPUs contradict the plan.

    Raises:
        LabError: There is one.
    """
    bad = [check for check in checks.values() if not check.status.good]
    if bad:
        first, *others = bad
        names = _names([check.where for check in others])
        more = f" (also not as planned: {names})" if others else ""
        raise LabError(f"{first.where}: {first.what}{more}", first.fix)


def summary_line(checks: Mapping[str, GpuCheck]) -> str:
    """Return one line for checks that do not contradict the plan."""
    parts = []
    proved = {name: check for name, check in checks.items() if check.status is GpuStatus.PROVED}
    holders = [check for check in proved.values() if check.planned]
    if holders:
        gpus = len({gpu for check in holders for gpu in check.planned})
        parts.append(f"{counted(gpus, 'GPU')} of {counted(len(holders), 'task')} proved (NVML)")
    unknown = [name for name in checks if name not in proved]
    if unknown:
        parts.append(f"{_names(unknown)} not proved ({checks[unknown[0]].what})")
    empty = [name for name, check in proved.items() if not check.planned]
    if empty:
        parts.append(f"{_names(empty)} {'sees' if len(empty) == 1 else 'see'} none")
    return "GPUs: " + ", ".join(parts)


def _normalized(ids: Iterable[str]) -> list[str]:
    """Return ids for a comparison: sorted, in lower case."""
    return sorted(gpu.lower() for gpu in ids)


def _ids(ids: Sequence[str]) -> str:
    return short(", ".join(ids)) or "none"


def _names(names: Collection[str]) -> str:
    if len(names) > _MAX_NAMES:
        return f"{len(names)} tasks"
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
