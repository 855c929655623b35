"""Who uses a card now."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from lab.gpu.model import Condition, Process
from lab.gpu.nvml import Handle, Library, Questions, text
from lab.gpu.nvml_errors import condition_of

PROC: Final = Path("/proc")

# The newest function, which gives as many bytes for each process as the structure that pynvml
# makes; and the one that drivers before 510 have.
_COMPUTE: Final = (
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
_GRAPHICS: Final = (
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
)


def processes(library: Library, handle: Handle, questions: Questions) -> tuple[Process, ...]:
    """The processes that have a context on a card or a slice, each once, by their ids."""
    computing = questions.ask("processes", lambda: _running(library, handle, _COMPUTE), [])
    found = computing + questions.ask("processes", lambda: _graphics(library, handle), [])
    compute = {each.pid for each in computing}
    memory: dict[int, int | None] = {}
    for each in found:
        # One that computes and draws is told twice, with the same memory.
        known = memory.get(each.pid)
        taken = each.usedGpuMemory
        memory[each.pid] = taken if known is None else max(known, taken or 0)
    return tuple(
        Process(pid, _name(library, pid), memory[pid], pid in compute) for pid in sorted(memory)
    )


def _graphics(library: Library, handle: Handle) -> list[Any]:
    """The processes that draw; none on a card that cannot."""
    try:
        return _running(library, handle, _GRAPHICS)
    except library.NVMLError as error:
        if condition_of(error) is Condition.NOT_SUPPORTED:
            return []
        raise


def _running(library: Library, handle: Handle, functions: tuple[str, str]) -> list[Any]:
    newest, older = (getattr(library, name) for name in functions)
    try:
        return list(newest(handle))
    except library.NVMLError as error:
        if condition_of(error) is not Condition.OLD_DRIVER:
            raise
    return list(older(handle))


def _name(library: Library, pid: int) -> str:
    """A process's program; "" where it has ended, or is hidden from this user."""
    try:
        return text(library.nvmlSystemGetProcessName(pid))
    except (library.NVMLError, UnicodeDecodeError):  # pynvml decodes, and takes only UTF-8
        pass
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").removesuffix("\n")
    except OSError:
        return ""
