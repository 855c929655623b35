"""`lab gpus`.

Examples:
    # a table of GPUs, and the GPUs that each task sees
    lab gpus
    # as JSON
    lab gpus --json
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.selection import list_running
from lab.cli.gpu_tables import Holders, Pinned, overview, pinned_table
from lab.console import print_json
from lab.errors import LabError
from lab.gpu import Condition, Gpu, Inventory, read_host
from lab.gpu.values import DRIVER
from lab.gpu.verification import check_all
from lab.options.shared import AsJson
from lab.tables import show


def command(*, json: AsJson = False) -> None:
    """Show the GPUs of this host, their connections, and the task that holds each."""
    inventory = read_host()
    pinned = [each for one in list_running(backends()) for each in _pinned(one, inventory.gpus)]
    holders = _holders(inventory, pinned)
    if json:
        print_json(_as_json(inventory, pinned, holders))
    else:
        show(overview(inventory, holders))
        if any(each.check.planned or not each.check.status.good for each in pinned):
            show(pinned_table(pinned))
    for fault in inventory.faults:
        # A host without a driver is no error; a driver that does not work is one.
        if fault.where == DRIVER and fault.status is not Condition.NO_DRIVER:
            raise LabError(f"the driver does not work: {fault.status}", fault.fix)


def _pinned(environment: Environment, gpus: Sequence[Gpu]) -> Iterator[Pinned]:
    planned = {task.task: task.gpus for task in environment.tasks()}
    # The inventory has no GPUs of another host.
    known = gpus if environment.is_local else ()
    for check in check_all(environment.probe_gpus(), planned, known).values():
        yield Pinned(environment.project, environment.backend, check)


def _holders(inventory: Inventory, pinned: Sequence[Pinned]) -> Holders:
    """Return the holders by device id. A pin by index means the whole GPU of this index."""
    found: dict[str, list[str]] = {gpu.device_id: [] for gpu in inventory.gpus}
    by_index = {str(gpu.index): gpu.device_id for gpu in inventory.gpus if not gpu.is_slice}
    for each in pinned:
        for pin in each.check.planned:
            device = by_index.get(pin, pin)
            if device in found:
                found[device].append(each.name)
    return found


def _as_json(inventory: Inventory, pinned: Sequence[Pinned], holders: Holders) -> dict[str, Any]:
    gpus = [
        {
            **asdict(gpu),
            "unknown": dict(gpu.unknown),
            "tasks": list(holders[gpu.device_id]),
        }
        for gpu in inventory.gpus
    ]
    return {
        "driver": inventory.driver,
        "cuda": inventory.cuda,
        "gpus": gpus,
        "pairs": [asdict(pair) for pair in inventory.pairs],
        "faults": [fault.as_json() for fault in inventory.faults],
        "notices": list(inventory.notices),
        "tasks": [each.to_json() for each in pinned],
    }
