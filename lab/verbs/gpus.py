"""`lab gpus`.

Examples:
    # a table of GPUs, and the GPUs that each task sees
    lab gpus
    # as JSON
    lab gpus --json
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.selection import list_running
from lab.base.errors import LabError
from lab.base.formatting import counted
from lab.base.options import verb
from lab.base.tables import table_of
from lab.base.text import clipped, visible
from lab.cluster.gpu import Condition, Gpu, Inventory, Process, read_host
from lab.cluster.gpu.support import build_of, by_gpus
from lab.cluster.gpu.values import DRIVER
from lab.cluster.gpu.verification import GpuCheck, GpuStatus, check_all
from lab.protocol.runtimes import TENSORFLOW
from lab.verbs.printing import Tabular, prints

_ID: Final = 12  # characters of a UUID: `GPU-5e3f1a09`
_NAME: Final = 20
_GIB: Final = 2**30
_MAKER: Final = "NVIDIA "  # the common prefix of all names
_PROCESS: Final = 18
_MAX_NAMED: Final = 5  # more processes than these are only counted


@dataclass(frozen=True, slots=True)
class Pinned:
    """A task or a node of an environment that is up.

    Attributes:
        environment: The environment.
        backend: Its backend.
        check: The check of its GPUs; `where` is the task or the node.
    """

    environment: str
    backend: str
    check: GpuCheck

    @property
    def name(self) -> str:
        """`mnist/worker-0`."""
        return f"{self.environment}/{self.check.where}"

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        own = {"environment": self.environment, "backend": self.backend}
        return own | self.check.as_json()


_STYLES: Final[Mapping[GpuStatus, str]] = {
    GpuStatus.PROVED: "green",
    GpuStatus.UNKNOWN: "yellow",
    GpuStatus.MISMATCH: "bold red",
    GpuStatus.LOST: "bold red",
}


def headline(inventory: Inventory) -> str:
    """Return `8 GPUs and 2 MIG slices, driver 550.54, CUDA up to 12.4`."""
    slices = sum(gpu.is_slice for gpu in inventory.gpus)
    whole = len(inventory.gpus) - slices
    counts = {"GPU": whole, "MIG slice": slices}
    named = [counted(count, noun) for noun, count in counts.items() if count]
    parts = [" and ".join(named) or "no GPUs"]
    parts += [f"driver {inventory.driver}"] if inventory.driver else []
    parts += [f"CUDA up to {inventory.cuda}"] if inventory.cuda else []
    return ", ".join(parts)


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
    """Return a GPU's name without its maker; for a slice only the profile: `MIG 1g.10gb`."""
    before, mark, profile = gpu.name.rpartition("MIG ")
    return mark + profile if gpu.is_slice and before else gpu.name.removeprefix(_MAKER)


def _memory(gpu: Gpu) -> str:
    """Return the used and the total memory in GiB: `5.1 of 15.8`."""
    if not gpu.memory_bytes:
        return ""
    free = gpu.memory_free_bytes
    used = "?" if free is None else f"{(gpu.memory_bytes - free) / _GIB:.1f}"
    return f"{used} of {gpu.memory_bytes / _GIB:.1f}"


def _processes(gpu: Gpu) -> str:
    """Return `GPU 0 is used by Xorg (pid 4000), python3 (pid 4001)`."""
    named = [_process(process) for process in gpu.processes[:_MAX_NAMED]]
    more = len(gpu.processes) - _MAX_NAMED
    names = ", ".join(named) + (f" and {more} more" if more > 0 else "")
    return f"GPU {gpu.index} is used by {names}"


def _process(process: Process) -> str:
    name = clipped(process.name.rpartition("/")[2], _PROCESS)
    return f"{name} (pid {process.pid})" if name else f"pid {process.pid}"


def _matrix(inventory: Inventory) -> Table:
    """Return the connection of each pair of GPUs, like `nvidia-smi topo -m`."""
    indices = sorted({gpu.index for gpu in inventory.gpus if not gpu.is_slice})
    paths = {
        (pair.first, pair.second): "NVLink" if pair.nvlink else pair.path
        for pair in inventory.pairs
    }
    rows = [
        (str(row), *(paths.get((min(row, column), max(row, column)), "") for column in indices))
        for row in indices
    ]
    return table_of((">gpu", *(f">{index}" for index in indices)), rows)


def _ids(ids: Sequence[str]) -> str:
    return " ".join(device_id[:_ID] for device_id in ids) or "none"


@dataclass(frozen=True, slots=True, repr=False)
class Gpus(Tabular):
    """The GPUs of this host, and the task that holds each.

    Attributes:
        inventory: The GPUs and the driver.
        pinned: The check of each task of an environment that is up.
    """

    inventory: Inventory
    pinned: Sequence[Pinned]

    @property
    def holders(self) -> Mapping[str, Sequence[str]]:
        """Device id to the tasks that are pinned to it; an index means the whole GPU of it."""
        gpus = self.inventory.gpus
        by_index = {str(gpu.index): gpu.device_id for gpu in gpus if not gpu.is_slice}
        pins = [
            (by_index.get(pin, pin), each) for each in self.pinned for pin in each.check.planned
        ]
        return {
            gpu.device_id: [each.name for pin, each in pins if pin == gpu.device_id] for gpu in gpus
        }

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        inventory, holders = self.inventory, self.holders
        gpus = [
            {**asdict(gpu), "unknown": dict(gpu.unknown), "tasks": list(holders[gpu.device_id])}
            for gpu in inventory.gpus
        ]
        return {
            "driver": inventory.driver,
            "cuda": inventory.cuda,
            "gpus": gpus,
            "pairs": [asdict(pair) for pair in inventory.pairs],
            "faults": [fault.as_json() for fault in inventory.faults],
            "notices": list(inventory.notices),
            "tasks": [each.to_json() for each in self.pinned],
        }

    def _entries(self) -> Any:  # noqa: ANN401  (a list of JSON objects)
        """Return the GPUs, not their connections and the tasks."""
        return self.to_json()["gpus"]

    def check(self) -> None:
        """Check that the driver works; a host without one is no error.

        Raises:
            LabError: It does not.
        """
        for fault in self.inventory.faults:
            if fault.where == DRIVER and fault.status is not Condition.NO_DRIVER:
                raise LabError(f"the driver does not work: {fault.status}", fault.fix)

    def _shown(self) -> Iterator[Table | Text]:
        yield from self._overview()
        if any(each.check.planned or not each.check.status.good for each in self.pinned):
            yield from self._of_tasks()

    def _overview(self) -> Iterator[Table | Text]:
        """Yield the tables of the GPUs, with the tasks that hold each."""
        inventory, holders = self.inventory, self.holders
        yield Text(visible(headline(inventory)))
        if inventory.gpus:
            columns = (">gpu", "uuid", "name", ">GiB in use", ">busy", ">numa", "task")
            yield table_of(columns, [_row(gpu, holders[gpu.device_id]) for gpu in inventory.gpus])
            lines = [_processes(gpu) for gpu in inventory.gpus if gpu.processes]
            supports = by_gpus(inventory.gpus, build_of(TENSORFLOW.name, os.environ))
            lines += [str(support) for support in supports if support.what]
            yield from (Text(visible(line)) for line in lines)
        if inventory.pairs:
            yield from (Text(), Text("connections"), _matrix(inventory))
        for line in (*map(str, inventory.faults), *inventory.other_notices):
            yield Text(visible(line), style="yellow")

    def _of_tasks(self) -> Iterator[Table | Text]:
        """Yield the table of the planned and the observed GPUs of each task, and its errors."""
        yield Text()
        checks = [(each.name, each.check, _STYLES[each.check.status]) for each in self.pinned]
        empty = [
            name
            for name, check, _ in checks
            if check.status is GpuStatus.PROVED and not check.planned
        ]
        rows = [
            (
                name,
                _ids(check.planned),
                "unknown" if check.seen is None else _ids(check.seen),
                Text(check.status.value, style=style),
            )
            for name, check, style in checks
            if name not in empty
        ]
        yield table_of(("task", "planned", "seen", "verdict"), rows)
        if empty:
            yield Text(visible(f"proved to see no GPU: {', '.join(empty)}"))
        for each in self.pinned:
            if not each.check.status.good:
                text = visible(f"{each.environment}/{each.check}")
                yield Text(text, style=_STYLES[each.check.status])


@verb
def gpus() -> Gpus:
    """Find the GPUs of this host, their connections, and the task that holds each."""
    inventory = read_host()
    pinned = [each for one in list_running(backends()) for each in _pinned(one, inventory.gpus)]
    return Gpus(inventory, pinned)


def _pinned(environment: Environment, gpus: Sequence[Gpu]) -> Iterator[Pinned]:
    planned = {task.task: task.gpus for task in environment.tasks()}
    # The inventory has no GPUs of another host.
    known = gpus if environment.is_local else ()
    for check in check_all(environment.probe_gpus(), planned, known).values():
        yield Pinned(environment.project, environment.backend, check)


command = prints(gpus)
