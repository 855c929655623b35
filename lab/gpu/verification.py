"""The check of a task's GPUs: combines the evidence of all sources."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from lab.errors import LabError
from lab.finding import Finding
from lab.formatting import counted
from lab.gpu import evidence
from lab.gpu.evidence import Evidence, ExpectedGpus, GpuView
from lab.gpu.model import Gpu
from lab.gpu_answers import CUDA_CODE, LOST, NO_LIBCUDA, NOT_ASKED, UNKNOWN_ERROR
from lab.text import short

_RESTART: Final = (
    "restart its container (`docker restart`), or run `lab down` and `lab up`; to prevent it after"
    " each `systemctl daemon-reload`, set the engine to the cgroupfs driver or CDI"
)

_NO_ANSWER: Final = "check `nvidia-smi` and `dmesg | grep Xid` on the host, then reboot"

_FILE_MODE: Final = (
    "let every user open the GPUs: set NVreg_DeviceFileMode=0666 in the driver's options"
)

_CUDA_FAILS: Final = (
    "check `nvidia-smi` and `dmesg | grep -i nvrm` on the host, and run `lab doctor`"
)

_NODE_HINTS: Final = {
    "Permission denied": _FILE_MODE,
    "Operation not permitted": _RESTART,  # the engine's device cgroup refuses it
}
"""Why a device node cannot be opened → the hint; for any other reason `_NO_ANSWER`."""

_CUDA_HINTS: Final = {
    "802": "start the fabric manager on the host: `sudo systemctl start nvidia-fabricmanager`",
    "803": "reboot the host: its driver and the driver's library differ",
    "804": "update the NVIDIA driver",
    "999": "run `sudo nvidia-modprobe -u -c=0` on the host, else check `dmesg`",
}
"""CUDA's code for a driver that cannot start → the hint."""


_MAX_NAMES: Final = 3
"""The maximum number of tasks in a line; more are counted."""


class GpuStatus(StrEnum):
    """The result of a check."""

    PROVED = "proved"
    DECLARED = "declared"
    MISMATCH = "mismatch"
    LOST = "lost"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        """Whether no source contradicts the plan."""
        return self not in {GpuStatus.MISMATCH, GpuStatus.LOST}


@dataclass(frozen=True, slots=True)
class GpuCheck(Finding[GpuStatus]):
    """The check of one task's GPUs.

    `what` is such as `planned GPU-b…, sees GPU-c… (NVML)`. There is a fix if a source contradicts
    the plan.

    Attributes:
        planned: Device ids of the planned GPUs.
        seen: Device ids that the best source shows; None if no source shows any.
        sources: The sources that agree with the plan.
    """

    planned: tuple[str, ...] = ()
    seen: tuple[str, ...] | None = None
    sources: tuple[str, ...] = ()


def check_gpus(
    planned: tuple[str, ...],
    gpu_view: GpuView,
    minors: Mapping[str, int] | None = None,
    index_to_uuid: Mapping[str, str] | None = None,
) -> GpuCheck:
    """Compare the planned GPUs of a task with the GPUs that it sees.

    Args:
        planned: Device ids: UUIDs, or indices as text.
        gpu_view: What the task sees.
        minors: Device id to the minor number of its device node on this host.
        index_to_uuid: Index as text to the UUID of that GPU on this host.
    """
    uuids = tuple((index_to_uuid or {}).get(each, each) for each in planned)
    known = ExpectedGpus(planned, uuids)
    # The best source is first; environment variables alone prove nothing.
    in_container = [
        evidence.of_nvml(known, gpu_view),
        evidence.of_nodes(known, gpu_view, minors or {}),
    ]
    strong = [
        evidence.of_cuda(known, gpu_view),
        *in_container,
        evidence.of_tensorflow(known, gpu_view),
    ]
    proved = any(each.agrees and each.proves for each in strong)
    lost = _why_lost(known, gpu_view, minors or {})
    environment = evidence.of_environment(
        known,
        gpu_view,
        # A lost GPU was given to the task, too.
        shown=lost is not None or any(each.agrees and each.seen for each in strong),
        exact=any(each.agrees and each.proves for each in in_container),
    )
    weak = [environment, evidence.of_engine(known, gpu_view)]
    against = next((each for each in [*weak, *strong] if each.agrees is False), None)
    if against is None and lost is None:
        lost = _why_failing(known, gpu_view)
    if lost is not None and (against is None or against not in weak):
        why, fix = lost
        text = f"planned {_ids(planned)}, but cannot use it: {why}"
        return GpuCheck(GpuStatus.LOST, text, fix, planned=planned, seen=())
    answers = [*strong, *weak]
    if against is not None:
        text = f"planned {_ids(planned)}, sees {_ids(against.seen)} ({against.source})"
        return GpuCheck(GpuStatus.MISMATCH, text, against.fix, planned=planned, seen=against.seen)
    agreeing = [each for each in answers if each.agrees]
    sources = tuple(each.source for each in agreeing)
    if not agreeing:
        text = f"planned {_ids(planned)}; the GPUs that it sees are unknown ({_reasons(answers)})"
        return GpuCheck(GpuStatus.UNKNOWN, text, planned=planned)
    status, how = GpuStatus.PROVED, f"sees the same ({', '.join(sources)})"
    if not proved:
        status = GpuStatus.DECLARED
        how = f"declared the same ({', '.join(sources)}); {_reasons(strong)}"
    text = f"planned {_ids(planned)}, {how}"
    return GpuCheck(status, text, planned=planned, seen=planned, sources=sources)


def _why_lost(
    planned: ExpectedGpus, gpu_view: GpuView, minors: Mapping[str, int]
) -> tuple[str, str] | None:
    """Return why the planned GPUs cannot be used, and the hint; None if they can."""
    if not planned.ids or not gpu_view.isolated:
        return None
    wanted = {minors[each] for each in planned.ids if each in minors}
    for minor, fault in (gpu_view.nodes or {}).items():
        if fault and (minor in wanted or not wanted):
            fix = _NODE_HINTS.get(fault, _NO_ANSWER)
            return f"/dev/nvidia{minor} cannot be opened ({fault})", fix
    reason = gpu_view.reasons.get("nvml", "")
    if reason not in LOST.values():
        return None
    return f"NVML reports: {reason}", _RESTART if reason == LOST[UNKNOWN_ERROR] else _NO_ANSWER


def _why_failing(planned: ExpectedGpus, gpu_view: GpuView) -> tuple[str, str] | None:
    """Return why CUDA's driver cannot start, and the hint; None if it starts or is missing.

    Without this check, a program would train on CPUs silently.
    """
    reason = gpu_view.reasons.get("cuda", NOT_ASKED)
    if not planned.ids or gpu_view.cuda is not None or reason in {NOT_ASKED, NO_LIBCUDA}:
        return None
    code = CUDA_CODE.search(reason)
    fix = _CUDA_HINTS.get(code[1], _CUDA_FAILS) if code else _CUDA_FAILS
    return f"CUDA reports: {short(reason, 120)}", fix


def _ids(ids: Sequence[str]) -> str:
    return short(", ".join(ids)) or "none"


def _reasons(answers: Sequence[Evidence]) -> str:
    def each() -> Iterator[str]:
        for answer in answers:
            if answer.agrees is None and answer.why != NOT_ASKED:
                yield f"{answer.source}: {short(answer.why, 120)}"

    return ", ".join(each()) or "nothing else could be read"


def summary_line(checks: Mapping[str, GpuCheck]) -> str:
    """Return one line for checks that do not contradict the plan."""
    return "GPUs: " + ", ".join(_parts(checks))


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
    minors: dict[str, int] = {}
    for gpu in gpus:
        # Some systems (WSL) have no device nodes, neither on the host nor in a container.
        if gpu.minor is not None and Path(f"/dev/nvidia{gpu.minor}").exists():
            minors[gpu.device_id] = gpu.minor
            minors[str(gpu.index)] = gpu.minor
    return {
        name: replace(check_gpus(planned.get(name, ()), gpu_view, minors, uuids), where=name)
        for name, gpu_view in views.items()
    }


def raise_for_faults(checks: Mapping[str, GpuCheck]) -> None:
    """Raise an error for the first task whose GPUs contradict the plan.

    Raises:
        LabError: There is one.
    """
    bad = [each for each in checks.values() if not each.status.good]
    if bad:
        first, *others = bad
        names = _names([each.where for each in others])
        more = f" (also not as planned: {names})" if others else ""
        raise LabError(f"{first.where}: {first.what}{more}", first.fix)


def _parts(checks: Mapping[str, GpuCheck]) -> Iterator[str]:
    holders = {name: each for name, each in checks.items() if each.planned}
    for status, how in ((GpuStatus.PROVED, "proved"), (GpuStatus.DECLARED, "declared only")):
        group = {name: each for name, each in holders.items() if each.status is status}
        if group:
            gpus = len({gpu for each in group.values() for gpu in each.planned})
            first = next(iter(group.values()))
            why = ", ".join(first.sources)
            if status is GpuStatus.DECLARED:
                why = first.what.partition("; ")[2]
            yield f"{counted(gpus, 'GPU')} of {counted(len(group), 'task')} {how} ({why})"
    unknown = [(name, each) for name, each in checks.items() if each.status is GpuStatus.UNKNOWN]
    for name, each in unknown[:1]:
        others = f" and {counted(len(unknown) - 1, 'other')}" if len(unknown) > 1 else ""
        yield f"{name}{others}: {each.what}"
    empty = {name: each for name, each in checks.items() if not each.planned}
    for status, one, several in (
        (GpuStatus.PROVED, "sees none", "see none"),
        (GpuStatus.DECLARED, "has none (declared only)", "have none (declared only)"),
    ):
        names = [name for name, each in empty.items() if each.status is status]
        if names:
            yield f"{_names(names)} {one if len(names) == 1 else several}"


def _names(names: Collection[str]) -> str:
    if len(names) > _MAX_NAMES:
        return f"{len(names)} tasks"
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
