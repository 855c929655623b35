"""The evidence of each source about a task's GPUs, compared with its plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lab.gpu.model import SLICE
from lab.gpu_answers import NO_LIBCUDA, NOT_ASKED

# The names of the sources in messages.
ENGINE: Final = "engine"
ENVIRONMENT: Final = "environment"
NODES: Final = "device nodes"
NVML: Final = "NVML"
CUDA: Final = "CUDA"
TENSORFLOW: Final = "TensorFlow"


@dataclass(frozen=True, slots=True)
class GpuView:
    """The report of `lab.task.node.gpu_probe` for a task, and the engine's.

    None means that the source has no answer; `reasons` has the reason.

    Attributes:
        environment: The variables of the task's first process, or of its agent.
        nodes: Minor number of each device node → "", or why it cannot be opened.
        nvml: UUIDs that NVML shows.
        cuda: UUIDs that CUDA shows; without prefix if CUDA does not report GPU or slice.
        tensorflow: The number of GPUs that TensorFlow lists.
        reasons: Source → why it has no answer.
        isolated: Whether nodes and NVML show only this task's GPUs, as in a container.
        engine: Device ids that the engine gave to its container.
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
    def from_json(cls, text: str) -> GpuView:
        """Parse the output of `lab.task.node.gpu_probe`.

        Raises:
            ValueError: The text is not such an output.
        """
        import msgspec  # noqa: PLC0415  (only a boot reads views)

        try:
            gpu_view = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"not a GPU report: {error}") from None
        # A task must not set these two itself.
        return replace(gpu_view, isolated=False, engine=None)

    @classmethod
    def unknown(cls, why: str) -> GpuView:
        """Return the view of a task that did not answer."""
        return cls(reasons={ENVIRONMENT: why})

    @property
    def answered(self) -> bool:
        """Whether a driver shows a GPU to the task, so that it can use CUDA."""
        return bool(self.cuda or self.nvml or self.nodes)


NOTHING: Final = frozenset({"", "-1", "void", "none"})
"""The values of the variables that hide all GPUs from a process."""

_BOOT_AGAIN: Final = "boot it again; if that does not help, run `lab doctor`"

_LIBRARIES: Final = (
    "build the image again (`lab build`): TensorFlow and its CUDA libraries do not fit"
)

_WHEELS: Final = (
    "run `pip install 'tensorflow[and-cuda]==2.21.*'` for this Python, or train on CPUs with"
    " `--gpus none`"
)


@dataclass(frozen=True, slots=True)
class ExpectedGpus:
    """The planned GPUs of a task.

    Attributes:
        ids: Device ids, as in the plan.
        uuids: The same GPUs by UUID; by index if the UUID is unknown.
    """

    ids: tuple[str, ...]
    uuids: tuple[str, ...]

    @property
    def named(self) -> bool:
        """Whether all UUIDs are known."""
        return not any(each.isdecimal() for each in self.uuids)

    @property
    def cut(self) -> bool:
        """Whether some of them are MIG slices."""
        return any(each.upper().startswith(SLICE) for each in self.uuids)

    def same(self, seen: Collection[str]) -> bool:
        """Return whether these are the planned UUIDs, in any order."""
        return normalized(self.uuids) == normalized(seen)


def normalized(ids: Collection[str]) -> set[str]:
    """Return ids for a comparison: without order, in lower case."""
    return {each.strip().lower() for each in ids}


def bare_uuid(uuid: str) -> str:
    """Return a UUID without its prefix `GPU-` or `MIG-`."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of one source.

    Attributes:
        source: The source.
        agrees: Whether it agrees with the plan; None if it has no answer.
        proves: Whether its agreement is a proof: it shows the real GPUs.
        seen: The GPUs that it shows.
        why: Why it has no answer.
        fix: The hint if it disagrees.
    """

    source: str
    agrees: bool | None = None
    proves: bool = False
    seen: tuple[str, ...] = ()
    why: str = ""
    fix: str = _BOOT_AGAIN


def of_engine(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """Return the evidence of the engine: the GPUs that it gave to the container."""
    if gpu_view.engine is None:
        return Evidence(ENGINE, why="no engine")
    agrees = normalized(planned.ids) == normalized(gpu_view.engine)
    return Evidence(ENGINE, agrees, seen=gpu_view.engine)


def of_environment(
    planned: ExpectedGpus, gpu_view: GpuView, *, shown: bool, exact: bool
) -> Evidence:
    """Return the evidence of the environment variables.

    Args:
        planned: The plan.
        gpu_view: What the task sees.
        shown: Whether other sources show the planned GPUs.
        exact: Whether other sources show that the container has exactly the planned GPUs. CUDA
            does not: `CUDA_VISIBLE_DEVICES` limits it, and it shows only one of several slices.
    """
    variables = gpu_view.environment
    if variables is None:
        return Evidence(ENVIRONMENT, why=gpu_view.reasons.get(ENVIRONMENT, NOT_ASKED))
    cuda = _pins(variables.get("CUDA_VISIBLE_DEVICES"))
    if not gpu_view.isolated:
        # Without the variable, a process sees all GPUs of the host.
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
    return _runtime(planned, runtime or (), shown=shown, exact=exact)


def _runtime(
    planned: ExpectedGpus, runtime: tuple[str, ...], *, shown: bool, exact: bool
) -> Evidence:
    """Return the evidence of `NVIDIA_VISIBLE_DEVICES` in a container with planned GPUs."""
    if not runtime:
        # This is normal with CDI: then other sources must show the GPUs.
        why = "the engine set no NVIDIA_VISIBLE_DEVICES"
        return Evidence(ENVIRONMENT, None if shown else False, why=why)
    if exact and normalized(runtime) == {"all"}:
        # CUDA's images set it, and an engine with CDI may not change it.
        return Evidence(ENVIRONMENT, why="the image sets `all`")
    return Evidence(ENVIRONMENT, normalized(runtime) == normalized(planned.ids), seen=runtime)


def of_nodes(planned: ExpectedGpus, gpu_view: GpuView, minors: Mapping[str, int]) -> Evidence:
    """Return the evidence of the device nodes."""
    if not gpu_view.isolated or gpu_view.nodes is None:
        return Evidence(NODES, why=gpu_view.reasons.get("nodes", "not limited to this task"))
    names: dict[int, str] = {}
    for each in [*planned.ids, *minors]:
        if each in minors:
            names.setdefault(minors[each], each)
    seen = tuple(names.get(minor, f"/dev/nvidia{minor}") for minor in gpu_view.nodes)
    if all(each in minors for each in planned.ids):
        wanted = {minors[each] for each in planned.ids}
        # The node of a GPU does not show which of its slices a task has.
        return Evidence(NODES, wanted == set(gpu_view.nodes), not planned.cut, seen)
    if not seen:
        return Evidence(NODES, why="no device nodes, as on this host")
    fits = len(seen) <= len(planned.ids) if planned.cut else len(seen) == len(set(planned.ids))
    return Evidence(NODES, fits, seen=seen)


def of_nvml(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """Return the evidence of NVML."""
    if not gpu_view.isolated or gpu_view.nvml is None:
        return Evidence(NVML, why=gpu_view.reasons.get("nvml", "not limited to this task"))
    if planned.named:
        return Evidence(NVML, planned.same(gpu_view.nvml), proves=True, seen=gpu_view.nvml)
    return Evidence(NVML, len(gpu_view.nvml) == len(set(planned.ids)), seen=gpu_view.nvml)


def of_cuda(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """Return the evidence of CUDA's driver."""
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
            return Evidence(CUDA, why="this driver does not report the slice")
        # CUDA shows a process any one of its slices.
        fits = len(seen) == 1 and seen[0] in planned.uuids
        return Evidence(CUDA, fits, len(planned.uuids) == 1, seen)
    if planned.named:
        return Evidence(CUDA, planned.same(seen), proves=True, seen=seen)
    return Evidence(CUDA, len(seen) == len(set(planned.ids)), seen=seen)


def of_tensorflow(planned: ExpectedGpus, gpu_view: GpuView) -> Evidence:
    """Return the evidence of TensorFlow: the number of GPUs that it lists."""
    if gpu_view.tensorflow is None:
        return Evidence(TENSORFLOW, why=gpu_view.reasons.get("tensorflow", NOT_ASKED))
    # CUDA shows a process only one of its slices.
    expected = 1 if planned.cut else len(set(planned.ids))
    seen = tuple(f"GPU:{position}" for position in range(gpu_view.tensorflow))
    # In a container TensorFlow is part of the image, locally of this Python.
    fix = _BOOT_AGAIN if len(seen) >= expected else _LIBRARIES if gpu_view.isolated else _WHEELS
    return Evidence(TENSORFLOW, len(seen) == expected, seen=seen, fix=fix)


def _pins(value: str | None) -> tuple[str, ...] | None:
    """Return the device ids of a variable; None if it is not set."""
    if value is None:
        return None
    return tuple(each for each in value.split(",") if each.strip().lower() not in NOTHING)
