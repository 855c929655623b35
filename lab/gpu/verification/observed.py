"""The GPUs that a task sees, as its probe reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

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
