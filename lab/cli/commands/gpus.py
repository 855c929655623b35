"""`lab gpus`.

Examples:
    # a table of GPUs, and the GPUs that each task sees
    lab gpus
    # as JSON
    lab gpus --json
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.selection import list_running
from lab.cli.gpu_tables import Holders, Pinned, overview, pinned_table, support_to_json
from lab.console import print_json
from lab.errors import LabError
from lab.gpu import Condition, Gpu, Inventory, read_host
from lab.gpu.model import DRIVER
from lab.gpu.verification import check_all
from lab.options.shared import AsJson
from lab.tables import show


def command(*, json: AsJson = False) -> None:
    """Show the GPUs of this host, their connections, and the task that holds each."""
    inventory = read_host()
    pinned = [each for one in list_running(backends()) for each in _pinned(one, inventory.gpus)]
    snapshot = _Snapshot(inventory, tuple(pinned))
    if json:
        print_json(snapshot.to_json())
    else:
        show(snapshot.tables())
    for fault in inventory.faults:
        # A host without a driver is no error; a driver that does not work is one.
        if fault.where == DRIVER and fault.status is not Condition.NO_DRIVER:
            raise LabError(f"the driver does not work: {fault.status}", fault.fix)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The GPUs of the host, and the tasks that hold them.

    Attributes:
        inventory: What NVML reports.
        pinned: Every task of every environment that is up, and the check of its GPUs.
    """

    inventory: Inventory
    pinned: tuple[Pinned, ...]

    def tables(self) -> Group:
        """Return the tables."""
        parts = [overview(self.inventory, self._holders())]
        if any(each.check.planned or not each.check.status.good for each in self.pinned):
            parts.append(pinned_table(self.pinned))
        return Group(*parts)

    def to_json(self) -> dict[str, Any]:
        """Return the object of `--json`."""
        holders = self._holders()
        gpus = [
            {
                **asdict(gpu),
                "unknown": dict(gpu.unknown),
                "tasks": list(holders[gpu.device_id]),
                "support": support_to_json(gpu),
            }
            for gpu in self.inventory.gpus
        ]
        return {
            "driver": self.inventory.driver,
            "cuda": self.inventory.cuda,
            "gpus": gpus,
            "pairs": [asdict(pair) for pair in self.inventory.pairs],
            "faults": [fault.as_json() for fault in self.inventory.faults],
            "notices": list(self.inventory.notices),
            "tasks": [each.to_json() for each in self.pinned],
        }

    def _holders(self) -> Holders:
        """Return the holders by device id. A pin by index means the whole GPU of this index."""
        found: dict[str, list[str]] = {gpu.device_id: [] for gpu in self.inventory.gpus}
        by_index = {
            str(gpu.index): gpu.device_id for gpu in self.inventory.gpus if not gpu.is_slice
        }
        for each in self.pinned:
            for pin in each.check.planned:
                device = by_index.get(pin, pin)
                if device in found:
                    found[device].append(each.name)
        return found


def _pinned(environment: Environment, gpus: Sequence[Gpu]) -> Iterator[Pinned]:
    planned = {task.task: task.gpus for task in environment.tasks()}
    # The inventory has no GPUs of another host.
    known = gpus if environment.is_local else ()
    for check in check_all(environment.probe_gpus(), planned, known).values():
        yield Pinned(environment.project, environment.backend, check)
