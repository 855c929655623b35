"""What a task sees, as it has told it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

# Who tells it, in words of a message.
ENGINE: Final = "engine"
ENVIRONMENT: Final = "environment"
NODES: Final = "device nodes"
NVML: Final = "NVML"
CUDA: Final = "CUDA"
TENSORFLOW: Final = "TensorFlow"


@dataclass(frozen=True, slots=True)
class GpuView:
    """What a task sees, as `lab.task.probes.gpu_probe` tells it, and what the engine says of it.

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
    def from_json(cls, text: str) -> GpuView:
        """Read what `lab.task.probes.gpu_probe` has printed.

        Raises:
            ValueError: It is no such text.
        """
        import msgspec  # noqa: PLC0415  (only a boot reads views)

        try:
            gpu_view = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ValueError(f"no sight: {error}") from None
        # These two are not the task's own to report.
        return replace(gpu_view, isolated=False, engine=None)

    @classmethod
    def untold(cls, why: str) -> GpuView:
        """Of a task that could not be asked."""
        return cls(reasons={ENVIRONMENT: why})

    @property
    def answered(self) -> bool:
        """Whether there is a driver that shows something inside: CUDA can be had there."""
        return bool(self.cuda or self.nvml or self.nodes)
