"""Samples the use of GPUs; it queries few values, because it runs often."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lab.gpu import nvml
from lab.gpu.model import SLICE, Condition
from lab.gpu.nvml import Handle, Library


@dataclass(frozen=True, slots=True)
class Sample:
    """One GPU or slice at one moment; None means unknown.

    Attributes:
        device_id: The UUID, or index as text, as requested.
        utilisation: Share of the driver's last sample period in which a kernel ran, 0 to 1; None
            for a MIG slice: no driver reports it.
        memory_used_bytes: Memory in use.
        power_w: Power of the whole GPU, in watts; None for a MIG slice.
    """

    device_id: str
    utilisation: float | None
    memory_used_bytes: int | None
    power_w: float | None


class Sampler:
    """Samples GPUs inside a `with` block; the driver is opened once."""

    def __init__(self, device_ids: Collection[str]) -> None:
        self._device_ids = tuple(device_ids)
        self._stack = ExitStack()
        self._handles: dict[str, Handle] = {}

    def __enter__(self) -> Self:
        """Open the driver and find the GPUs; an unknown one is left out.

        Raises:
            NoDriverError: No driver answers.
        """
        with ExitStack() as stack:
            self._library: Library = stack.enter_context(nvml.session())
            for device_id in self._device_ids:
                # A GPU that is lost, or of another host, cannot be sampled.
                with suppress(self._library.NVMLError):
                    self._handles[device_id] = self._handle(device_id)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._handles.clear()
        self._stack.close()

    def sample(self) -> list[Sample]:
        """Sample the GPUs, without those that do not answer; raises nothing."""
        taken = (self._sample(device_id, handle) for device_id, handle in self._handles.items())
        return [sample for sample in taken if sample is not None]

    def _handle(self, device_id: str) -> Handle:
        if device_id.isdecimal():
            return self._library.nvmlDeviceGetHandleByIndex(int(device_id))
        return self._library.nvmlDeviceGetHandleByUUID(device_id)

    def _sample(self, device_id: str, handle: Handle) -> Sample | None:
        nvml = self._library
        utilisation = power = None
        try:
            memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
            if not device_id.startswith(SLICE):  # some drivers report the whole GPU for it
                utilisation = self._ask(
                    lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
                )
                power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000)  # from mW
        except nvml.NVMLError:
            return None
        if utilisation is None and memory is None and power is None:
            return None
        return Sample(device_id, utilisation, None if memory is None else int(memory), power)

    def _ask(self, question: Callable[[], float]) -> float | None:
        """Return an answer, or None if the driver gives none.

        Raises:
            NVMLError: The GPU is lost: all other questions to it would fail, too.
        """
        return nvml.answer_or(self._library, question, None, set(Condition) - {Condition.GPU_LOST})
