"""The cards of a box as tables: what `lab gpus` shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lab.gpu import Gpu, Inventory, Pair, Process
from lab.gpu.verification import GpuCheck, GpuStatus
from lab.run.tables import table_of
from lab.task.text import clipped, visible

_ID: Final = 12  # characters of a UUID: `GPU-5e3f1a09`
_NAME: Final = 20
_GIB: Final = 2**30
_MAKER: Final = "NVIDIA "  # all of them are; what differs stands behind it
_PROCESS: Final = 18
_SOME: Final = 5  # processes that are named; the others are counted

Holders = Mapping[str, Sequence[str]]
"""Device id to the tasks that are pinned to it, `mnist/worker-0`."""


@dataclass(frozen=True, slots=True)
class Pinned:
    """One task, or node, of an environment that is up.

    Attributes:
        environment: The environment.
        backend: Where it is up.
        task: The task, or the node whose anchor it is.
        verdict: What is known of its cards.
    """

    environment: str
    backend: str
    task: str
    verdict: GpuCheck

    @property
    def name(self) -> str:
        """`mnist/worker-0`."""
        return f"{self.environment}/{self.task}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        seen = self.verdict.seen
        return {
            "environment": self.environment,
            "backend": self.backend,
            "task": self.task,
            "planned": list(self.verdict.planned),
            "seen": None if seen is None else list(seen),
            "verdict": self.verdict.status.value,
            "sources": list(self.verdict.sources),
            "explanation": self.verdict.explanation,
            "mend": self.verdict.fix,
        }


_STYLES: Final[Mapping[GpuStatus, str]] = {
    GpuStatus.PROVED: "green",
    GpuStatus.DECLARED: "yellow",
    GpuStatus.UNKNOWN: "yellow",
    GpuStatus.MISMATCH: "bold red",
    GpuStatus.LOST: "bold red",
}

_NONE: Final[Mapping[GpuStatus, str]] = {
    GpuStatus.PROVED: "proved to see none",
    GpuStatus.DECLARED: "told to see none",
}


def overview(inventory: Inventory, holders: Holders) -> Group:
    """All that is known of the cards, and beside each one who holds it."""
    parts: list[Table | Text] = [Text(visible(headline(inventory)))]
    if inventory.gpus:
        parts.append(_gpu_table(inventory.gpus, holders))
        parts += [Text(visible(_processes(gpu))) for gpu in inventory.gpus if gpu.processes]
    if inventory.pairs:
        parts += [Text(), Text("how they are connected"), _matrix(inventory)]
    parts += [Text(visible(str(fault)), style="yellow") for fault in inventory.faults]
    return Group(*parts)


def pinned_table(pinned: Sequence[Pinned]) -> Group:
    """What each task was to see, and what it sees; faults in words below."""
    rows = [
        (each.name, _ids(each.verdict.planned), _observed(each.verdict), _status_cell(each.verdict))
        for each in pinned
        if each.verdict.planned or each.verdict.status not in _NONE
    ]
    parts: list[Table | Text] = [Text(), table_of(("task", "planned", "seen", "verdict"), rows)]
    for argument, reported in _NONE.items():
        empty = [e.name for e in pinned if not e.verdict.planned and e.verdict.status is argument]
        if empty:
            parts.append(Text(visible(f"{reported}: {', '.join(empty)}")))
    for each in pinned:
        if not each.verdict.status.good:
            text = f"{each.name}: {each.verdict.explanation}; {each.verdict.fix}"
            parts.append(Text(visible(text), style=_STYLES[each.verdict.status]))
    return Group(*parts)


def headline(inventory: Inventory) -> str:
    """`8 GPUs and 2 MIG slices, driver 550.54, CUDA up to 12.4`."""
    slices = sum(gpu.is_slice for gpu in inventory.gpus)
    whole = len(inventory.gpus) - slices
    counts = [_plural(whole, "GPU")] if whole or not slices else []
    counts += [_plural(slices, "MIG slice")] if slices else []
    arguments = [" and ".join(counts)]
    arguments += [f"driver {inventory.driver}"] if inventory.driver else []
    arguments += [f"CUDA up to {inventory.cuda}"] if inventory.cuda else []
    return ", ".join(arguments)


def _gpu_table(gpus: Sequence[Gpu], holders: Holders) -> Table:
    columns = (">gpu", "uuid", "name", ">GiB in use", ">busy", ">numa", "task")
    return table_of(columns, [_row(gpu, holders.get(gpu.device_id, ())) for gpu in gpus])


def _row(gpu: Gpu, tasks: Sequence[str]) -> tuple[str, ...]:
    return (
        str(gpu.index),
        gpu.device_id[:_ID],
        clipped(_model(gpu), _NAME),
        _memory(gpu),
        "" if gpu.utilisation is None else f"{gpu.utilisation:.0%}",
        "" if gpu.numa_node is None else str(gpu.numa_node),
        " ".join(tasks),
    )


def _model(gpu: Gpu) -> str:
    """A card's name; of a slice, whose card stands beside it, only the profile: `MIG 1g.10gb`."""
    before, mark, profile = gpu.name.rpartition("MIG ")
    return mark + profile if gpu.is_slice and before else gpu.name.removeprefix(_MAKER)


def _memory(gpu: Gpu) -> str:
    """`5.1 of 15.8`."""
    if not gpu.memory_bytes:
        return ""
    free = gpu.memory_free_bytes
    used = "?" if free is None else f"{(gpu.memory_bytes - free) / _GIB:.1f}"
    return f"{used} of {gpu.memory_bytes / _GIB:.1f}"


def _processes(gpu: Gpu) -> str:
    """`GPU 0 is used by Xorg (pid 4000), python3 (pid 4001)`."""
    named = [_process(each) for each in gpu.processes[:_SOME]]
    more = len(gpu.processes) - _SOME
    names = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    return f"GPU {gpu.index} is used by {names}"


def _process(process: Process) -> str:
    name = clipped(process.name.rpartition("/")[2], _PROCESS)
    return f"{name} (pid {process.pid})" if name else f"pid {process.pid}"


def _matrix(inventory: Inventory) -> Table:
    """Who is how far from whom, as `nvidia-smi topo -m` shows it."""
    indices = sorted({gpu.index for gpu in inventory.gpus if not gpu.is_slice})
    ways = {(pair.first, pair.second): _connection(pair) for pair in inventory.pairs}
    rows = [
        (str(row), *(ways.get((min(row, column), max(row, column)), "") for column in indices))
        for row in indices
    ]
    return table_of((">gpu", *(f">{index}" for index in indices)), rows)


def _connection(pair: Pair) -> str:
    return f"NV{pair.nvlinks}" if pair.nvlinks else pair.path


def _status_cell(verdict: GpuCheck) -> Text:
    return Text(verdict.status.value, style=_STYLES[verdict.status])


def _observed(verdict: GpuCheck) -> str:
    return "cannot be told" if verdict.seen is None else _ids(verdict.seen)


def _ids(ids: Sequence[str]) -> str:
    return " ".join(each[:_ID] for each in ids) or "none"


def _plural(count: int, argument: str) -> str:
    return f"{count} {argument}" if count == 1 else f"{count or 'no'} {argument}s"
