"""The verdict: all sources together, the best witness first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from lab.gpu.verification import evidence
from lab.gpu.verification.evidence import Answer, Planned
from lab.gpu.verification.observed import Sight
from lab.task.sight import CUDA_CODE, LOST, NO_LIBCUDA, NOT_ASKED, UNKNOWN_ERROR
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

_NODE_MENDS: Final = {
    "Permission denied": _FILE_MODE,
    "Operation not permitted": _RESTART,  # so the engine's fence refuses
}
"""Why a node cannot be opened → the mend; whatever else it is, the card does not answer."""

_CUDA_MENDS: Final = {
    "802": "start the fabric manager: `sudo systemctl start nvidia-fabricmanager` on the host",
    "803": "reboot the host: its driver and the driver's library differ",
    "804": "update the NVIDIA driver",
    "999": "`sudo nvidia-modprobe -u -c=0` on the host, else see `dmesg`",
}
"""CUDA's codes for a driver that is there and cannot start → the mend."""


class Word(StrEnum):
    """What is known of a task's cards."""

    PROVED = "proved"
    DECLARED = "declared"
    MISMATCH = "mismatch"
    LOST = "lost"
    UNKNOWN = "unknown"

    @property
    def good(self) -> bool:
        """Whether nothing speaks against the plan."""
        return self not in {Word.MISMATCH, Word.LOST}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of one task's cards.

    Attributes:
        word: The verdict.
        planned: Device ids that it was to have.
        seen: Device ids that it has, by the best source that could tell; None where none could.
        sources: Those that could tell and agree with the plan.
        explanation: In one line: `planned GPU-b…, sees GPU-c… (NVML)`.
        mend: How to mend it; "" where nothing speaks against the plan.
    """

    word: Word
    planned: tuple[str, ...]
    seen: tuple[str, ...] | None
    sources: tuple[str, ...]
    explanation: str
    mend: str = ""


def verdict(
    planned: tuple[str, ...],
    sight: Sight,
    minors: Mapping[str, int] | None = None,
    index_to_uuid: Mapping[str, str] | None = None,
) -> Verdict:
    """Compare a task's plan with what it sees.

    Args:
        planned: Device ids: UUIDs, or indices as text.
        sight: What it sees.
        minors: Device id to the minor number of its device node on this box.
        index_to_uuid: Index as text to the UUID of that card on this box.
    """
    uuids = tuple((index_to_uuid or {}).get(each, each) for each in planned)
    known = Planned(planned, uuids)
    # The best witness comes first; the variables are only what somebody wrote down.
    fence = [evidence.of_nvml(known, sight), evidence.of_nodes(known, sight, minors or {})]
    strong = [evidence.of_cuda(known, sight), *fence, evidence.of_tensorflow(known, sight)]
    proved = any(each.agrees and each.proves for each in strong)
    lost = _why_lost(known, sight, minors or {})
    environment = evidence.of_environment(
        known,
        sight,
        # A card that was lost had been given, too.
        shown=lost is not None or any(each.agrees and each.seen for each in strong),
        fenced=any(each.agrees and each.proves for each in fence),
    )
    weak = [environment, evidence.of_engine(known, sight)]
    against = next((each for each in [*weak, *strong] if each.agrees is False), None)
    if against is None and lost is None:
        lost = _why_failing(known, sight)
    if lost is not None and (against is None or against not in weak):
        why, mend = lost
        text = f"planned {_words(planned)}, and cannot use it: {why}"
        return Verdict(Word.LOST, planned, (), (), text, mend)
    answers = [*strong, *weak]
    if against is not None:
        text = f"planned {_words(planned)}, sees {_words(against.seen)} ({against.source})"
        return Verdict(Word.MISMATCH, planned, against.seen, (), text, against.mend)
    agreeing = [each for each in answers if each.agrees]
    sources = tuple(each.source for each in agreeing)
    if not agreeing:
        text = f"planned {_words(planned)}; what it sees cannot be told ({_reasons(answers)})"
        return Verdict(Word.UNKNOWN, planned, None, (), text)
    if proved:
        text = f"planned {_words(planned)}, sees the same ({', '.join(sources)})"
        return Verdict(Word.PROVED, planned, planned, sources, text)
    text = f"planned {_words(planned)}, told the same ({', '.join(sources)}); {_reasons(strong)}"
    return Verdict(Word.DECLARED, planned, planned, sources, text)


def _why_lost(planned: Planned, sight: Sight, minors: Mapping[str, int]) -> tuple[str, str] | None:
    """Why cards that are this task's cannot be used, and how to mend it."""
    if not planned.ids or not sight.isolated:
        return None
    wanted = {minors[each] for each in planned.ids if each in minors}
    for minor, fault in (sight.nodes or {}).items():
        if fault and (minor in wanted or not wanted):
            mend = _NODE_MENDS.get(fault, _DEAD)
            return f"/dev/nvidia{minor} cannot be opened ({fault})", mend
    reason = sight.reasons.get("nvml", "")
    if reason not in LOST.values():
        return None
    return f"NVML says: {reason}", _RESTART if reason == LOST[UNKNOWN_ERROR] else _DEAD


def _why_failing(planned: Planned, sight: Sight) -> tuple[str, str] | None:
    """Why CUDA's driver cannot start, and how to mend it; None where it can, or there is none.

    A program would train on CPUs without a word.
    """
    reason = sight.reasons.get("cuda", NOT_ASKED)
    if not planned.ids or sight.cuda is not None or reason in {NOT_ASKED, NO_LIBCUDA}:
        return None
    code = CUDA_CODE.search(reason)
    mend = _CUDA_MENDS.get(code[1], _CUDA_FAILS) if code else _CUDA_FAILS
    return f"CUDA says: {short(reason, 120)}", mend


def _words(ids: Sequence[str]) -> str:
    return short(", ".join(ids)) or "none"


def _reasons(answers: Sequence[Answer]) -> str:
    def each() -> Iterator[str]:
        for answer in answers:
            if answer.agrees is None and answer.why != NOT_ASKED:
                yield f"{answer.source}: {short(answer.why, 120)}"

    return ", ".join(each()) or "nothing else could be read"
