"""`lab gpus`.

Examples:
    # a table of GPUs, and the GPUs that each task sees
    lab gpus
    # as JSON
    lab gpus --json
"""

from __future__ import annotations

import json as json_
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from rich.console import Console, Group
from rich.live import Live

from lab.backends.base import Backend
from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.backends.selection import list_running
from lab.cli.gpu_tables import Holders, Pinned, overview, pinned_table, support_to_json
from lab.console import print_json
from lab.errors import InputError, LabError
from lab.gpu import Condition, Gpu, Inventory, read_host
from lab.gpu.model import DRIVER
from lab.gpu.verification import check_all
from lab.options import Switch
from lab.options.shared import AsJson
from lab.tables import show

_EVERY_S: Final = 1.0
_TASKS_EVERY_S: Final = 30.0


def command(
    *,
    json: AsJson = False,
    watch: Annotated[bool, Switch("update every second, until Ctrl-C")] = False,
) -> None:
    """Show the GPUs of this host, their connections, and the task that holds each."""
    if not watch:
        _once(json=json)
        return
    if not json and not sys.stdout.isatty():
        raise InputError("--watch needs a terminal", "add --json to print a line every second")
    with suppress(KeyboardInterrupt):  # Ctrl-C is the normal end
        _watch(json=json)


def _once(*, json: bool) -> None:
    snapshot = _take_snapshot()
    if json:
        print_json(snapshot.to_json())
    else:
        show(snapshot.tables())
    for fault in snapshot.inventory.faults:
        # A host without a driver is no error; a driver that does not work is one.
        if fault.where == DRIVER and fault.status is not Condition.NO_DRIVER:
            raise LabError(f"the driver does not work: {fault.status}", fault.fix)


def _watch(*, json: bool) -> None:
    watcher = _Watcher()
    if json:
        while True:
            print(json_.dumps(watcher.snapshot().to_json()), flush=True)
            time.sleep(_EVERY_S)
    with Live(
        watcher.snapshot().tables(), console=Console(), auto_refresh=False, screen=True
    ) as live:
        while True:
            time.sleep(_EVERY_S)
            live.update(watcher.snapshot().tables(), refresh=True)


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


def _take_snapshot() -> _Snapshot:
    inventory = read_host()
    return _Snapshot(inventory, _all_pinned(backends(), inventory.gpus))


class _Watcher:
    """Reads the GPUs at each call, and the tasks' GPUs less often, because that starts processes.

    If the engine does not answer, the last known data of the tasks is shown.
    """

    def __init__(self) -> None:
        self._backends = backends()
        self._pinned: tuple[Pinned, ...] = ()
        self._next_check = -math.inf

    def snapshot(self) -> _Snapshot:
        """Return the current state of the host."""
        inventory = read_host()
        if time.monotonic() >= self._next_check:
            with suppress(LabError):
                self._pinned = _all_pinned(self._backends, inventory.gpus)
            self._next_check = time.monotonic() + _TASKS_EVERY_S
        return _Snapshot(inventory, self._pinned)


def _all_pinned(known: Sequence[Backend], gpus: Sequence[Gpu]) -> tuple[Pinned, ...]:
    return tuple(each for one in list_running(known) for each in _pinned(one, gpus))


def _pinned(environment: Environment, gpus: Sequence[Gpu]) -> Iterator[Pinned]:
    planned = {task.task: task.gpus for task in environment.tasks()}
    # The inventory has no GPUs of another host.
    known = gpus if environment.is_local else ()
    for check in check_all(environment.probe_gpus(), planned, known).values():
        yield Pinned(environment.project, environment.backend, check)
