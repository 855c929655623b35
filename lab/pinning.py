"""What a task was to see, and what it sees: the comparison. Nothing here asks anybody."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from lab.gpus.model import SLICE
from lab.task.sight import CUDA_CODE, LOST, NO_LIBCUDA, NOT_ASKED, UNKNOWN_ERROR
from lab.task.text import short

NOTHING: Final = frozenset({"", "-1", "void", "none"})
"""What the variables say where a process is to see no card."""

RESTART: Final = (
    "restart its container (`docker restart`), or `lab down` and `lab up`; it comes back with each"
    " `systemctl daemon-reload` until the engine uses the cgroupfs driver or CDI"
)
_BOOT_ANEW: Final = "boot it anew; if it stays so, see `lab doctor`"
_DEAD: Final = "check `nvidia-smi` and `dmesg | grep Xid` on the host, then reboot"
_FILE_MODE: Final = (
    "let every user open the cards: NVreg_DeviceFileMode=0666 in the driver's options"
)
_LIBRARIES: Final = (
    "TensorFlow and its CUDA libraries do not fit: build the image anew (`lab build`)"
)
_WHEELS: Final = (
    "`pip install 'tensorflow[and-cuda]==2.21.*'` into this Python, or train on CPUs with"
    " `--gpus none`"
)
_CUDA_FAILS: Final = "check `nvidia-smi` and `dmesg | grep -i nvrm` on the host, and `lab doctor`"

_ENGINE: Final = "engine"
_ENVIRONMENT: Final = "environment"
_NODES: Final = "device nodes"
_NVML: Final = "NVML"
_CUDA: Final = "CUDA"
_TENSORFLOW: Final = "TensorFlow"

_NODE_MENDS: Final = {
    "Permission denied": _FILE_MODE,
    "Operation not permitted": RESTART,  # so the engine's fence refuses
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
class Sight:
    """What a task sees, as `lab.task.sight` tells it, and what the engine says of it.

    None means that this source cannot tell; `reasons` says why.

    Attributes:
        environment: The variables of its first process, or of its agent.
        nodes: Minor number of each device node → "", or why it cannot be opened.
        nvml: UUIDs that NVML shows.
        cuda: UUIDs that CUDA shows; bare where it may be a card's or a slice's.
        tensorflow: How many GPUs TensorFlow lists.
        reasons: Source → why it cannot tell.
        isolated: Whether nodes and NVML are this task's own, as in a container.
        engine: Device ids that the engine has given it.
    """

    environment: Mapping[str, str] | None = None
    nodes: Mapping[int, str] | None = None
    nvml: tuple[str, ...] | None = None
    cuda: tuple[str, ...] | None = None
    tensorflow: int | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    isolated: bool = False
    engine: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, text: str) -> Sight:
        """Read what `lab.task.sight` has printed.

        Raises:
            ValueError: It is no such text.
        """
        raw = json.loads(text)
        _check("it", isinstance(raw, dict))
        nodes = _texts(raw, "nodes")
        sight = cls(
            environment=_texts(raw, "environment"),
            nodes=None if nodes is None else {int(key): value for key, value in nodes.items()},
            nvml=_list(raw, "nvml"),
            cuda=_list(raw, "cuda"),
            tensorflow=raw.get("tensorflow"),
            reasons=_texts(raw, "reasons") or {},
        )
        _check("tensorflow", sight.tensorflow is None or type(sight.tensorflow) is int)
        return sight

    @classmethod
    def untold(cls, why: str) -> Sight:
        """Of a task that could not be asked."""
        return cls(reasons={_ENVIRONMENT: why})

    @property
    def answered(self) -> bool:
        """Whether there is a driver that shows something inside: CUDA can be had there."""
        return bool(self.cuda or self.nvml or self.nodes)


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


@dataclass(frozen=True, slots=True)
class _Answer:
    """What one source says.

    Attributes:
        source: Which.
        agrees: With the plan; None: it cannot tell.
        proves: Whether its consent is enough, as it knows which cards are really there.
        seen: What it shows.
        why: Why it cannot tell.
        mend: How to mend it, where it disagrees.
    """

    source: str
    agrees: bool | None = None
    proves: bool = False
    seen: tuple[str, ...] = ()
    why: str = ""
    mend: str = _BOOT_ANEW


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
    known = _Planned(planned, uuids)
    # The best witness comes first; the variables are only what somebody wrote down.
    fence = [_nvml(known, sight), _nodes(known, sight, minors or {})]
    strong = [_cuda(known, sight), *fence, _tensorflow(known, sight)]
    proved = any(each.agrees and each.proves for each in strong)
    lost = _lost(known, sight, minors or {})
    environment = _environment(
        known,
        sight,
        # A card that was lost had been given, too.
        shown=lost is not None or any(each.agrees and each.seen for each in strong),
        fenced=any(each.agrees and each.proves for each in fence),
    )
    weak = [environment, _engine(known, sight)]
    against = next((each for each in [*weak, *strong] if each.agrees is False), None)
    if against is None and lost is None:
        lost = _failing(known, sight)
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


@dataclass(frozen=True, slots=True)
class _Planned:
    """A task's plan.

    Attributes:
        ids: Device ids as the plan has them.
        uuids: The same by UUID, as far as it is known; an index where it is not.
    """

    ids: tuple[str, ...]
    uuids: tuple[str, ...]

    @property
    def named(self) -> bool:
        """Whether all UUIDs are known."""
        return not any(each.isdecimal() for each in self.uuids)

    @property
    def cut(self) -> bool:
        """Whether there are slices among them."""
        return any(each.upper().startswith(SLICE) for each in self.uuids)

    def same(self, seen: Collection[str]) -> bool:
        """Whether these are the planned UUIDs, in any order."""
        return _folded(self.uuids) == _folded(seen)


def _engine(planned: _Planned, sight: Sight) -> _Answer:
    if sight.engine is None:
        return _Answer(_ENGINE, why="there is none")
    agrees = _folded(planned.ids) == _folded(sight.engine)
    return _Answer(_ENGINE, agrees, seen=sight.engine)


def _environment(planned: _Planned, sight: Sight, *, shown: bool, fenced: bool) -> _Answer:
    """What the variables say.

    Args:
        planned: The plan.
        sight: What the task sees.
        shown: Whether others show cards that fit.
        fenced: Whether others show that the container has exactly the planned ones; CUDA does not,
            as `CUDA_VISIBLE_DEVICES` narrows it, and of several slices it shows one.
    """
    variables = sight.environment
    if variables is None:
        return _Answer(_ENVIRONMENT, why=sight.reasons.get(_ENVIRONMENT, NOT_ASKED))
    cuda = _pins(variables.get("CUDA_VISIBLE_DEVICES"))
    if not sight.isolated:
        # Where nothing is set, all of the box is seen.
        seen = ("all",) if cuda is None else cuda
        return _Answer(_ENVIRONMENT, _folded(seen) == _folded(planned.ids), seen=seen)
    runtime = _pins(variables.get("NVIDIA_VISIBLE_DEVICES"))
    if not planned.ids:
        told = [each for each in (runtime, cuda) if each]
        agrees = runtime == () == cuda
        return _Answer(_ENVIRONMENT, agrees, seen=told[0] if told else () if agrees else ("all",))
    if cuda is not None and _folded(cuda) != _folded(planned.ids):
        return _Answer(_ENVIRONMENT, agrees=False, seen=cuda)
    return _runtime(planned, runtime or (), shown=shown, fenced=fenced)


def _runtime(planned: _Planned, runtime: tuple[str, ...], *, shown: bool, fenced: bool) -> _Answer:
    """What `NVIDIA_VISIBLE_DEVICES` says in a container that was to have cards."""
    if not runtime:
        # So it is where the engine hands out cards by CDI: then others must have seen them.
        why = "the engine has set no NVIDIA_VISIBLE_DEVICES"
        return _Answer(_ENVIRONMENT, None if shown else False, why=why)
    if fenced and _folded(runtime) == {"all"}:
        # So an image of CUDA's has it, and an engine that hands out cards by CDI may leave it.
        return _Answer(_ENVIRONMENT, why="the image says `all`")
    return _Answer(_ENVIRONMENT, _folded(runtime) == _folded(planned.ids), seen=runtime)


def _nodes(planned: _Planned, sight: Sight, minors: Mapping[str, int]) -> _Answer:
    if not sight.isolated or sight.nodes is None:
        return _Answer(_NODES, why=sight.reasons.get("nodes", "not this task's own"))
    names: dict[int, str] = {}
    for each in [*planned.ids, *minors]:
        if each in minors:
            names.setdefault(minors[each], each)
    seen = tuple(names.get(minor, f"/dev/nvidia{minor}") for minor in sight.nodes)
    if all(each in minors for each in planned.ids):
        wanted = {minors[each] for each in planned.ids}
        # Which slice of its card a task has, the card's node cannot tell.
        return _Answer(_NODES, wanted == set(sight.nodes), not planned.cut, seen)
    if not seen:
        return _Answer(_NODES, why="there are none, as on this box")
    fits = len(seen) <= len(planned.ids) if planned.cut else len(seen) == len(set(planned.ids))
    return _Answer(_NODES, fits, seen=seen)


def _nvml(planned: _Planned, sight: Sight) -> _Answer:
    if not sight.isolated or sight.nvml is None:
        return _Answer(_NVML, why=sight.reasons.get("nvml", "not this task's own"))
    if planned.named:
        return _Answer(_NVML, planned.same(sight.nvml), proves=True, seen=sight.nvml)
    return _Answer(_NVML, len(sight.nvml) == len(set(planned.ids)), seen=sight.nvml)


def _cuda(planned: _Planned, sight: Sight) -> _Answer:
    if sight.cuda is None:
        why = sight.reasons.get("cuda", NOT_ASKED)
        if not planned.ids and not sight.isolated and why == NO_LIBCUDA:
            return _Answer(_CUDA, agrees=True, proves=True)
        return _Answer(_CUDA, why=why)
    bare = {_bare(each): each for each in planned.uuids}
    seen = tuple(bare.get(_bare(each), each) for each in sight.cuda)
    if planned.cut:
        whole = any(each.upper().startswith("GPU-") for each in sight.cuda)
        if whole or any("/" in each for each in planned.uuids):
            return _Answer(_CUDA, why="this driver does not tell which slice it is")
        # Of several slices a process gets one, whichever it has.
        fits = len(seen) == 1 and seen[0] in planned.uuids
        return _Answer(_CUDA, fits, len(planned.uuids) == 1, seen)
    if planned.named:
        return _Answer(_CUDA, planned.same(seen), proves=True, seen=seen)
    return _Answer(_CUDA, len(seen) == len(set(planned.ids)), seen=seen)


def _tensorflow(planned: _Planned, sight: Sight) -> _Answer:
    if sight.tensorflow is None:
        return _Answer(_TENSORFLOW, why=sight.reasons.get("tensorflow", NOT_ASKED))
    # Of several slices a process gets one.
    expected = 1 if planned.cut else len(set(planned.ids))
    seen = tuple(f"GPU:{position}" for position in range(sight.tensorflow))
    # In a container they are the image's, locally this Python's.
    mend = _BOOT_ANEW if len(seen) >= expected else _LIBRARIES if sight.isolated else _WHEELS
    return _Answer(_TENSORFLOW, len(seen) == expected, seen=seen, mend=mend)


def _lost(planned: _Planned, sight: Sight, minors: Mapping[str, int]) -> tuple[str, str] | None:
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
    return f"NVML says: {reason}", RESTART if reason == LOST[UNKNOWN_ERROR] else _DEAD


def _failing(planned: _Planned, sight: Sight) -> tuple[str, str] | None:
    """Why CUDA's driver cannot start, and how to mend it; None where it can, or there is none.

    A program would train on CPUs without a word.
    """
    reason = sight.reasons.get("cuda", NOT_ASKED)
    if not planned.ids or sight.cuda is not None or reason in {NOT_ASKED, NO_LIBCUDA}:
        return None
    code = CUDA_CODE.search(reason)
    mend = _CUDA_MENDS.get(code[1], _CUDA_FAILS) if code else _CUDA_FAILS
    return f"CUDA says: {short(reason, 120)}", mend


def _pins(value: str | None) -> tuple[str, ...] | None:
    """The device ids of a variable; None where it is not set."""
    if value is None:
        return None
    return tuple(each for each in value.split(",") if each.strip().lower() not in NOTHING)


def _folded(ids: Collection[str]) -> set[str]:
    return {each.strip().lower() for each in ids}


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


def _words(ids: Sequence[str]) -> str:
    return short(", ".join(ids)) or "none"


def _reasons(answers: Sequence[_Answer]) -> str:
    def each() -> Iterator[str]:
        for answer in answers:
            if answer.agrees is None and answer.why != NOT_ASKED:
                yield f"{answer.source}: {short(answer.why, 120)}"

    return ", ".join(each()) or "nothing else could be read"


def _texts(raw: Mapping[str, Any], name: str) -> dict[str, str] | None:
    found = raw.get(name)
    if found is None:
        return None
    _check(name, isinstance(found, dict))
    _check(name, all(isinstance(each, str) for each in found.values()))
    return dict(found)


def _list(raw: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    found = raw.get(name)
    if found is None:
        return None
    _check(name, isinstance(found, list) and all(isinstance(each, str) for each in found))
    return tuple(found)


def _check(name: str, holds: bool) -> None:
    if not holds:
        raise ValueError(f"no sight: {name} is of another kind")
