"""Reads the processes that use a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lab.gpu import nvml
from lab.gpu.model import Condition, Process
from lab.gpu.nvml import DeviceQueries, Handle, Library

PROC: Final = Path("/proc")

# The newest function, which fits the size of pynvml's structure; and the function of drivers
# before 510.
_COMPUTE: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
_GRAPHICS: Final = (
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
)


def processes(library: Library, handle: Handle, questions: DeviceQueries) -> tuple[Process, ...]:
    """Return the processes that have a context on a GPU or a slice, in order of their ids."""
    computing = questions.ask("processes", lambda: _running(library, handle, _COMPUTE), [])
    drawing: list[Any] = questions.ask(
        "processes",
        # A GPU without graphics has no such processes.
        lambda: nvml.answer_or(
            library, lambda: _running(library, handle, _GRAPHICS), [], {Condition.NOT_SUPPORTED}
        ),
        [],
    )
    compute = {each.pid for each in computing}
    memory: dict[int, int | None] = {}
    for each in computing + drawing:
        # A process with both contexts is listed twice, with the same memory.
        known = memory.get(each.pid)
        taken = each.usedGpuMemory
        memory[each.pid] = taken if known is None else max(known, taken or 0)
    return tuple(
        Process(pid, _name(library, pid), memory[pid], pid in compute) for pid in sorted(memory)
    )


def _running(library: Library, handle: Handle, functions: tuple[str, str]) -> list[Any]:
    newest, older = (getattr(library, name) for name in functions)
    found = nvml.answer_or(library, lambda: newest(handle), None, {Condition.OLD_DRIVER})
    return list(older(handle) if found is None else found)


def _name(library: Library, pid: int) -> str:
    """Return a process's program; "" if it has ended or is hidden from this user."""
    try:
        return nvml.text(library.nvmlSystemGetProcessName(pid))
    except (library.NVMLError, UnicodeDecodeError):  # pynvml decodes it as UTF-8
        pass
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return ""
