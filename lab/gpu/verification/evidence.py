"""What each source says of a task's cards, beside its plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from lab.gpu.model import SLICE
from lab.gpu.verification.observed import CUDA, ENGINE, ENVIRONMENT, NODES, NVML, TENSORFLOW, Sight
from lab.task.sight import NO_LIBCUDA, NOT_ASKED

NOTHING: Final = frozenset({"", "-1", "void", "none"})
"""What the variables say where a process is to see no card."""

_BOOT_ANEW: Final = "boot it anew; if it stays so, see `lab doctor`"

_LIBRARIES: Final = (
    "TensorFlow and its CUDA libraries do not fit: build the image anew (`lab build`)"
)

_WHEELS: Final = (
    "`pip install 'tensorflow[and-cuda]==2.21.*'` into this Python, or train on CPUs with"
    " `--gpus none`"
)


@dataclass(frozen=True, slots=True)
class Planned:
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
        return folded(self.uuids) == folded(seen)


def folded(ids: Collection[str]) -> set[str]:
    """Ids as they are compared: without order, in one way of writing."""
    return {each.strip().lower() for each in ids}


def bare_uuid(uuid: str) -> str:
    """A UUID without the word that says whether it is a card's or a slice's."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


@dataclass(frozen=True, slots=True)
class Answer:
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


def of_engine(planned: Planned, sight: Sight) -> Answer:
    """What the engine says that it has given."""
    if sight.engine is None:
        return Answer(ENGINE, why="there is none")
    agrees = folded(planned.ids) == folded(sight.engine)
    return Answer(ENGINE, agrees, seen=sight.engine)


def of_environment(planned: Planned, sight: Sight, *, shown: bool, fenced: bool) -> Answer:
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
        return Answer(ENVIRONMENT, why=sight.reasons.get(ENVIRONMENT, NOT_ASKED))
    cuda = _pins(variables.get("CUDA_VISIBLE_DEVICES"))
    if not sight.isolated:
        # Where nothing is set, all of the box is seen.
        seen = ("all",) if cuda is None else cuda
        return Answer(ENVIRONMENT, folded(seen) == folded(planned.ids), seen=seen)
    runtime = _pins(variables.get("NVIDIA_VISIBLE_DEVICES"))
    if not planned.ids:
        told = [each for each in (runtime, cuda) if each]
        agrees = runtime == () == cuda
        return Answer(ENVIRONMENT, agrees, seen=told[0] if told else () if agrees else ("all",))
    if cuda is not None and folded(cuda) != folded(planned.ids):
        return Answer(ENVIRONMENT, agrees=False, seen=cuda)
    return _runtime(planned, runtime or (), shown=shown, fenced=fenced)


def _runtime(planned: Planned, runtime: tuple[str, ...], *, shown: bool, fenced: bool) -> Answer:
    """What `NVIDIA_VISIBLE_DEVICES` says in a container that was to have cards."""
    if not runtime:
        # So it is where the engine hands out cards by CDI: then others must have seen them.
        why = "the engine has set no NVIDIA_VISIBLE_DEVICES"
        return Answer(ENVIRONMENT, None if shown else False, why=why)
    if fenced and folded(runtime) == {"all"}:
        # So an image of CUDA's has it, and an engine that hands out cards by CDI may leave it.
        return Answer(ENVIRONMENT, why="the image says `all`")
    return Answer(ENVIRONMENT, folded(runtime) == folded(planned.ids), seen=runtime)


def of_nodes(planned: Planned, sight: Sight, minors: Mapping[str, int]) -> Answer:
    """What the device nodes show."""
    if not sight.isolated or sight.nodes is None:
        return Answer(NODES, why=sight.reasons.get("nodes", "not this task's own"))
    names: dict[int, str] = {}
    for each in [*planned.ids, *minors]:
        if each in minors:
            names.setdefault(minors[each], each)
    seen = tuple(names.get(minor, f"/dev/nvidia{minor}") for minor in sight.nodes)
    if all(each in minors for each in planned.ids):
        wanted = {minors[each] for each in planned.ids}
        # Which slice of its card a task has, the card's node cannot tell.
        return Answer(NODES, wanted == set(sight.nodes), not planned.cut, seen)
    if not seen:
        return Answer(NODES, why="there are none, as on this box")
    fits = len(seen) <= len(planned.ids) if planned.cut else len(seen) == len(set(planned.ids))
    return Answer(NODES, fits, seen=seen)


def of_nvml(planned: Planned, sight: Sight) -> Answer:
    """What NVML shows."""
    if not sight.isolated or sight.nvml is None:
        return Answer(NVML, why=sight.reasons.get("nvml", "not this task's own"))
    if planned.named:
        return Answer(NVML, planned.same(sight.nvml), proves=True, seen=sight.nvml)
    return Answer(NVML, len(sight.nvml) == len(set(planned.ids)), seen=sight.nvml)


def of_cuda(planned: Planned, sight: Sight) -> Answer:
    """What CUDA's driver shows."""
    if sight.cuda is None:
        why = sight.reasons.get("cuda", NOT_ASKED)
        if not planned.ids and not sight.isolated and why == NO_LIBCUDA:
            return Answer(CUDA, agrees=True, proves=True)
        return Answer(CUDA, why=why)
    bare = {bare_uuid(each): each for each in planned.uuids}
    seen = tuple(bare.get(bare_uuid(each), each) for each in sight.cuda)
    if planned.cut:
        whole = any(each.upper().startswith("GPU-") for each in sight.cuda)
        if whole or any("/" in each for each in planned.uuids):
            return Answer(CUDA, why="this driver does not tell which slice it is")
        # Of several slices a process gets one, whichever it has.
        fits = len(seen) == 1 and seen[0] in planned.uuids
        return Answer(CUDA, fits, len(planned.uuids) == 1, seen)
    if planned.named:
        return Answer(CUDA, planned.same(seen), proves=True, seen=seen)
    return Answer(CUDA, len(seen) == len(set(planned.ids)), seen=seen)


def of_tensorflow(planned: Planned, sight: Sight) -> Answer:
    """How many GPUs TensorFlow lists."""
    if sight.tensorflow is None:
        return Answer(TENSORFLOW, why=sight.reasons.get("tensorflow", NOT_ASKED))
    # Of several slices a process gets one.
    expected = 1 if planned.cut else len(set(planned.ids))
    seen = tuple(f"GPU:{position}" for position in range(sight.tensorflow))
    # In a container they are the image's, locally this Python's.
    mend = _BOOT_ANEW if len(seen) >= expected else _LIBRARIES if sight.isolated else _WHEELS
    return Answer(TENSORFLOW, len(seen) == expected, seen=seen, mend=mend)


def _pins(value: str | None) -> tuple[str, ...] | None:
    """The device ids of a variable; None where it is not set."""
    if value is None:
        return None
    return tuple(each for each in value.split(",") if each.strip().lower() not in NOTHING)
