"""The verdict: all sources together, the best witness first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lab.gpu.verification import evidence
from lab.gpu.verification.evidence import Evidence, ExpectedGpus
from lab.gpu.verification.observed import GpuView
from lab.task.probes.gpu_probe import CUDA_CODE, LOST, NO_LIBCUDA, NOT_ASKED, UNKNOWN_ERROR
from lab.task.text import short

_RESTART: Final = (
    "restart its container (`docker restart`), or `lab down` and `lab up`; it comes back with each"
    " `systemctl daemon-reload` until the engine uses the cgroupfs driver or CDI"
)

_DEAD: Final = "check `nvidia-smi` and `dmesg | grep Xid` on the host, then reboot"

_FILE_MODE: Final = (
    "let every user open the cards: NVreg_DeviceFileMode=0666 in the driver's options"
)

_CUDA_FAILS: Final = "check `nvidia-smi` and `dmesg | grep -i nvrm` on the host, and `lab doctor`"

_NODE_HINTS: Final = {
    "Permission denied": _FILE_MODE,
    "Operation not permitted": _RESTART,  # so the engine's fence refuses
}
"""Why a node cannot be opened → the mend; whatever else it is, the card does not answer."""

_CUDA_HINTS: Final = {
    "802": "start the fabric manager: `sudo systemctl start nvidia-fabricmanager` on the host",
    "803": "reboot the host: its driver and the driver's library differ",
    "804": "update the NVIDIA driver",
    "999": "`sudo nvidia-modprobe -u -c=0` on the host, else see `dmesg`",
}
"""CUDA's codes for a driver that is there and cannot start → the mend."""


class GpuStatus(StrEnum):
    """What is known of a task's cards."""

    PROVED = "proved"
    DECLARED = "declared"
    MISMATCH = "mismatch"
    LOST = "lost"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        """Whether nothing speaks against the plan."""
        return self not in {GpuStatus.MISMATCH, GpuStatus.LOST}


@dataclass(frozen=True, slots=True)
class GpuCheck:
    """What is known of one task's cards.

    Attributes:
        status: The verdict.
        planned: Device ids that it was to have.
        seen: Device ids that it has, by the best source that could tell; None where none could.
        sources: Those that could tell and agree with the plan.
        explanation: In one line: `planned GPU-b…, sees GPU-c… (NVML)`.
        fix: How to fix it; "" where nothing speaks against the plan.
    """

    status: GpuStatus
    planned: tuple[str, ...]
    seen: tuple[str, ...] | None
    sources: tuple[str, ...]
    explanation: str
    fix: str = ""


def check_gpus(
    planned: tuple[str, ...],
    gpu_view: GpuView,
    minors: Mapping[str, int] | None = None,
    index_to_uuid: Mapping[str, str] | None = None,
) -> GpuCheck:
    """Compare a task's plan with what it sees.

    Args:
        planned: Device ids: UUIDs, or indices as text.
        gpu_view: What it sees.
        minors: Device id to the minor number of its device node on this box.
        index_to_uuid: Index as text to the UUID of that card on this box.
    """
    uuids = tuple((index_to_uuid or {}).get(each, each) for each in planned)
    known = ExpectedGpus(planned, uuids)
    # The best witness comes first; the variables are only what somebody wrote down.
    fence = [evidence.of_nvml(known, gpu_view), evidence.of_nodes(known, gpu_view, minors or {})]
    strong = [evidence.of_cuda(known, gpu_view), *fence, evidence.of_tensorflow(known, gpu_view)]
    proved = any(each.agrees and each.proves for each in strong)
    lost = _why_lost(known, gpu_view, minors or {})
    environment = evidence.of_environment(
        known,
        gpu_view,
        # A card that was lost had been given, too.
        shown=lost is not None or any(each.agrees and each.seen for each in strong),
        fenced=any(each.agrees and each.proves for each in fence),
    )
    weak = [environment, evidence.of_engine(known, gpu_view)]
    against = next((each for each in [*weak, *strong] if each.agrees is False), None)
    if against is None and lost is None:
        lost = _why_failing(known, gpu_view)
    if lost is not None and (against is None or against not in weak):
        why, fix = lost
        text = f"planned {_arguments(planned)}, and cannot use it: {why}"
        return GpuCheck(GpuStatus.LOST, planned, (), (), text, fix)
    answers = [*strong, *weak]
    if against is not None:
        text = f"planned {_arguments(planned)}, sees {_arguments(against.seen)} ({against.source})"
        return GpuCheck(GpuStatus.MISMATCH, planned, against.seen, (), text, against.fix)
    agreeing = [each for each in answers if each.agrees]
    sources = tuple(each.source for each in agreeing)
    if not agreeing:
        text = f"planned {_arguments(planned)}; what it sees cannot be told ({_reasons(answers)})"
        return GpuCheck(GpuStatus.UNKNOWN, planned, None, (), text)
    if proved:
        text = f"planned {_arguments(planned)}, sees the same ({', '.join(sources)})"
        return GpuCheck(GpuStatus.PROVED, planned, planned, sources, text)
    text = (
        f"planned {_arguments(planned)}, told the same ({', '.join(sources)}); {_reasons(strong)}"
    )
    return GpuCheck(GpuStatus.DECLARED, planned, planned, sources, text)


def _why_lost(
    planned: ExpectedGpus, gpu_view: GpuView, minors: Mapping[str, int]
) -> tuple[str, str] | None:
    """Why cards that are this task's cannot be used, and how to mend it."""
    if not planned.ids or not gpu_view.isolated:
        return None
    wanted = {minors[each] for each in planned.ids if each in minors}
    for minor, fault in (gpu_view.nodes or {}).items():
        if fault and (minor in wanted or not wanted):
            fix = _NODE_HINTS.get(fault, _DEAD)
            return f"/dev/nvidia{minor} cannot be opened ({fault})", fix
    reason = gpu_view.reasons.get("nvml", "")
    if reason not in LOST.values():
        return None
    return f"NVML says: {reason}", _RESTART if reason == LOST[UNKNOWN_ERROR] else _DEAD


def _why_failing(planned: ExpectedGpus, gpu_view: GpuView) -> tuple[str, str] | None:
    """Why CUDA's driver cannot start, and how to mend it; None where it can, or there is none.

    A program would train on CPUs without a word.
    """
    reason = gpu_view.reasons.get("cuda", NOT_ASKED)
    if not planned.ids or gpu_view.cuda is not None or reason in {NOT_ASKED, NO_LIBCUDA}:
        return None
    code = CUDA_CODE.search(reason)
    fix = _CUDA_HINTS.get(code[1], _CUDA_FAILS) if code else _CUDA_FAILS
    return f"CUDA says: {short(reason, 120)}", fix


def _arguments(ids: Sequence[str]) -> str:
    return short(", ".join(ids)) or "none"


def _reasons(answers: Sequence[Evidence]) -> str:
    def each() -> Iterator[str]:
        for answer in answers:
            if answer.agrees is None and answer.why != NOT_ASKED:
                yield f"{answer.source}: {short(answer.why, 120)}"

    return ", ".join(each()) or "nothing else could be read"
