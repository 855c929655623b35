"""The verdict: all sources together, the best witness first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lab.gpu.verification.diagnosis import why_failing, why_lost
from lab.gpu.verification.evidence import (
    Answer,
    of_cuda,
    of_engine,
    of_environment,
    of_nodes,
    of_nvml,
    of_tensorflow,
)
from lab.gpu.verification.expected import Planned
from lab.gpu.verification.observed import Sight
from lab.task.sight import NOT_ASKED
from lab.task.text import short


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
    fence = [of_nvml(known, sight), of_nodes(known, sight, minors or {})]
    strong = [of_cuda(known, sight), *fence, of_tensorflow(known, sight)]
    proved = any(each.agrees and each.proves for each in strong)
    lost = why_lost(known, sight, minors or {})
    environment = of_environment(
        known,
        sight,
        # A card that was lost had been given, too.
        shown=lost is not None or any(each.agrees and each.seen for each in strong),
        fenced=any(each.agrees and each.proves for each in fence),
    )
    weak = [environment, of_engine(known, sight)]
    against = next((each for each in [*weak, *strong] if each.agrees is False), None)
    if against is None and lost is None:
        lost = why_failing(known, sight)
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


def _words(ids: Sequence[str]) -> str:
    return short(", ".join(ids)) or "none"


def _reasons(answers: Sequence[Answer]) -> str:
    def each() -> Iterator[str]:
        for answer in answers:
            if answer.agrees is None and answer.why != NOT_ASKED:
                yield f"{answer.source}: {short(answer.why, 120)}"

    return ", ".join(each()) or "nothing else could be read"
