"""What each source says of a task's cards, beside its plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from lab.gpu.model import SLICE
from lab.gpu.verification.observed import (
    CUDA,
    ENGINE,
    ENVIRONMENT,
    NODES,
    NVML,
    TENSORFLOW,
    GpuView,
)
from lab.task.probes.gpu_probe import NO_LIBCUDA, NOT_ASKED

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
class ExpectedGpus:
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
        return normalized(self.uuids) == normalized(seen)


def normalized(ids: Collection[str]) -> set[str]:
    """Ids as they are compared: without order, in one way of writing."""
    return {each.strip().lower() for each in ids}


def bare_uuid(uuid: str) -> str:
    """A UUID without the word that says whether it is a card's or a slice's."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one source says.

    Attributes:
        source: Which.
        agrees: With the plan; None: it cannot tell.
        proves: Whether its consent is enough, as it knows which cards are really there.
        seen: What it shows.
        why: Why it cannot tell.
        fix: How to fix it, where it disagrees.
    """

    source: str
    agrees: bool | None = None
    proves: bool = False
    seen: tuple[str, ...] = ()
    why: str = ""
    fix: str = _BOOT_ANEW


def of_engine(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """What the engine says that it has given."""
    if gpu_view.engine is None:
        return Evidence(ENGINE, why="there is none")
    agrees = normalized(planned.ids) == normalized(gpu_view.engine)
    return Evidence(ENGINE, agrees, seen=gpu_view.engine)


def of_environment(
    planned: ExpectedGpus, gpu_view: GpuView, *, shown: bool, fenced: bool
) -> Evidence:
    """What the variables say.

    Args:
        planned: The plan.
        gpu_view: What the task sees.
        shown: Whether others show cards that fit.
        fenced: Whether others show that the container has exactly the planned ones; CUDA does not,
            as `CUDA_VISIBLE_DEVICES` narrows it, and of several slices it shows one.
    """
    variables = gpu_view.environment
    if variables is None:
        return Evidence(ENVIRONMENT, why=gpu_view.reasons.get(ENVIRONMENT, NOT_ASKED))
    cuda = _pins(variables.get("CUDA_VISIBLE_DEVICES"))
    if not gpu_view.isolated:
        # Where nothing is set, all of the box is seen.
        seen = ("all",) if cuda is None else cuda
        return Evidence(ENVIRONMENT, normalized(seen) == normalized(planned.ids), seen=seen)
    runtime = _pins(variables.get("NVIDIA_VISIBLE_DEVICES"))
    if not planned.ids:
        reported = [each for each in (runtime, cuda) if each]
        agrees = runtime == () == cuda
        return Evidence(
            ENVIRONMENT, agrees, seen=reported[0] if reported else () if agrees else ("all",)
        )
    if cuda is not None and normalized(cuda) != normalized(planned.ids):
        return Evidence(ENVIRONMENT, agrees=False, seen=cuda)
    return _runtime(planned, runtime or (), shown=shown, fenced=fenced)


def _runtime(
    planned: ExpectedGpus, runtime: tuple[str, ...], *, shown: bool, fenced: bool
) -> Evidence:
    """What `NVIDIA_VISIBLE_DEVICES` says in a container that was to have cards."""
    if not runtime:
        # So it is where the engine hands out cards by CDI: then others must have seen them.
        why = "the engine has set no NVIDIA_VISIBLE_DEVICES"
        return Evidence(ENVIRONMENT, None if shown else False, why=why)
    if fenced and normalized(runtime) == {"all"}:
        # So an image of CUDA's has it, and an engine that hands out cards by CDI may leave it.
        return Evidence(ENVIRONMENT, why="the image says `all`")
    return Evidence(ENVIRONMENT, normalized(runtime) == normalized(planned.ids), seen=runtime)


def of_nodes(planned: ExpectedGpus, gpu_view: GpuView, minors: Mapping[str, int]) -> Evidence:
    """What the device nodes show."""
    if not gpu_view.isolated or gpu_view.nodes is None:
        return Evidence(NODES, why=gpu_view.reasons.get("nodes", "not this task's own"))
    names: dict[int, str] = {}
    for each in [*planned.ids, *minors]:
        if each in minors:
            names.setdefault(minors[each], each)
    seen = tuple(names.get(minor, f"/dev/nvidia{minor}") for minor in gpu_view.nodes)
    if all(each in minors for each in planned.ids):
        wanted = {minors[each] for each in planned.ids}
        # Which slice of its card a task has, the card's node cannot tell.
        return Evidence(NODES, wanted == set(gpu_view.nodes), not planned.cut, seen)
    if not seen:
        return Evidence(NODES, why="there are none, as on this box")
    fits = len(seen) <= len(planned.ids) if planned.cut else len(seen) == len(set(planned.ids))
    return Evidence(NODES, fits, seen=seen)


def of_nvml(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """What NVML shows."""
    if not gpu_view.isolated or gpu_view.nvml is None:
        return Evidence(NVML, why=gpu_view.reasons.get("nvml", "not this task's own"))
    if planned.named:
        return Evidence(NVML, planned.same(gpu_view.nvml), proves=True, seen=gpu_view.nvml)
    return Evidence(NVML, len(gpu_view.nvml) == len(set(planned.ids)), seen=gpu_view.nvml)


def of_cuda(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """What CUDA's driver shows."""
    if gpu_view.cuda is None:
        why = gpu_view.reasons.get("cuda", NOT_ASKED)
        if not planned.ids and not gpu_view.isolated and why == NO_LIBCUDA:
            return Evidence(CUDA, agrees=True, proves=True)
        return Evidence(CUDA, why=why)
    bare = {bare_uuid(each): each for each in planned.uuids}
    seen = tuple(bare.get(bare_uuid(each), each) for each in gpu_view.cuda)
    if planned.cut:
        whole = any(each.upper().startswith("GPU-") for each in gpu_view.cuda)
        if whole or any("/" in each for each in planned.uuids):
            return Evidence(CUDA, why="this driver does not tell which slice it is")
        # Of several slices a process gets one, whichever it has.
        fits = len(seen) == 1 and seen[0] in planned.uuids
        return Evidence(CUDA, fits, len(planned.uuids) == 1, seen)
    if planned.named:
        return Evidence(CUDA, planned.same(seen), proves=True, seen=seen)
    return Evidence(CUDA, len(seen) == len(set(planned.ids)), seen=seen)


def of_tensorflow(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """How many GPUs TensorFlow lists."""
    if gpu_view.tensorflow is None:
        return Evidence(TENSORFLOW, why=gpu_view.reasons.get("tensorflow", NOT_ASKED))
    # Of several slices a process gets one.
    expected = 1 if planned.cut else len(set(planned.ids))
    seen = tuple(f"GPU:{position}" for position in range(gpu_view.tensorflow))
    # In a container they are the image's, locally this Python's.
    fix = _BOOT_ANEW if len(seen) >= expected else _LIBRARIES if gpu_view.isolated else _WHEELS
    return Evidence(TENSORFLOW, len(seen) == expected, seen=seen, fix=fix)


def _pins(value: str | None) -> tuple[str, ...] | None:
    """The device ids of a variable; None where it is not set."""
    if value is None:
        return None
    return tuple(each for each in value.split(",") if each.strip().lower() not in NOTHING)
