"""`lab gpus`.

Examples:
    # a table, and what each task really sees
    lab gpus
    # for a program
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

from lab.backends import Backend, Environment
from lab.backends.gpu_verification import evaluate
from lab.backends.selection import backends, list_running
from lab.cli.arguments import Switch
from lab.cli.gpu_tables import Holders, Pinned, overview, pinned_table
from lab.cli.options import AsJson
from lab.console import print_json
from lab.errors import InputError, LabError
from lab.gpu import Condition, Gpu, Inventory, read_host
from lab.gpu.model import DRIVER
from lab.run.tables import show

_EVERY_S: Final = 1.0
_TASKS_EVERY_S: Final = 30.0


def command(
    *,
    json: AsJson = False,
    watch: Annotated[bool, Switch("draw anew each second, until Ctrl-C")] = False,
) -> None:
    """Show the cards of this box, how they are connected, and which task holds each."""
    if not watch:
        _once(json=json)
        return
    if not json and not sys.stdout.isatty():
        raise InputError("--watch draws on a terminal", "add --json for a line each second")
    with suppress(KeyboardInterrupt):  # the way to end it
        _watch(json=json)


def _once(*, json: bool) -> None:
    seen = _take_snapshot()
    if json:
        print_json(seen.to_json())
    else:
        show(seen.shown())
    for fault in seen.inventory.faults:
        # That there is no driver is an answer; that one is there and does not work is a failure.
        if fault.where == DRIVER and fault.condition is not Condition.NO_DRIVER:
            raise LabError(f"the driver does not work: {fault.condition}", fault.mend)


def _watch(*, json: bool) -> None:
    watcher = _Watcher()
    if json:
        while True:
            print(json_.dumps(watcher.look().to_json()), flush=True)
            time.sleep(_EVERY_S)
    with Live(watcher.look().shown(), console=Console(), auto_refresh=False, screen=True) as live:
        while True:
            time.sleep(_EVERY_S)
            live.update(watcher.look().shown(), refresh=True)


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The box, and who holds which of its cards.

    Attributes:
        inventory: What NVML says.
        pinned: Every task of every environment that is up, and what is known of its cards.
    """

    inventory: Inventory
    pinned: tuple[Pinned, ...]

    def shown(self) -> Group:
        """For people."""
        parts = [overview(self.inventory, self._holders())]
        if any(each.verdict.planned or not each.verdict.status.good for each in self.pinned):
            parts.append(pinned_table(self.pinned))
        return Group(*parts)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        holders = self._holders()
        gpus = [
            {**asdict(gpu), "unknown": dict(gpu.unknown), "tasks": list(holders[gpu.device_id])}
            for gpu in self.inventory.gpus
        ]
        return {
            "driver": self.inventory.driver,
            "cuda": self.inventory.cuda,
            "gpus": gpus,
            "pairs": [asdict(pair) for pair in self.inventory.pairs],
            "faults": [asdict(fault) for fault in self.inventory.faults],
            "notices": list(self.inventory.notices),
            "tasks": [each.to_json() for each in self.pinned],
        }

    def _holders(self) -> Holders:
        """By device id; a pin that is an index names the whole card with it."""
        found: dict[str, list[str]] = {gpu.device_id: [] for gpu in self.inventory.gpus}
        by_index = {
            str(gpu.index): gpu.device_id for gpu in self.inventory.gpus if not gpu.is_slice
        }
        for each in self.pinned:
            for pin in each.verdict.planned:
                device = by_index.get(pin, pin)
                if device in found:
                    found[device].append(each.name)
        return found


def _take_snapshot() -> _Snapshot:
    inventory = read_host()
    return _Snapshot(inventory, _all_pinned(backends(), inventory.gpus))


class _Watcher:
    """Looks at the cards each time, and at the tasks, who are asked by programs of their own, less.

    An engine that does not answer for a while ends nothing: what was known of the tasks stays.
    """

    def __init__(self) -> None:
        self._backends = backends()
        self._pinned: tuple[Pinned, ...] = ()
        self._ask_at = -math.inf

    def look(self) -> _Snapshot:
        """The box now."""
        inventory = read_host()
        if time.monotonic() >= self._ask_at:
            with suppress(LabError):
                self._pinned = _all_pinned(self._backends, inventory.gpus)
            self._ask_at = time.monotonic() + _TASKS_EVERY_S
        return _Snapshot(inventory, self._pinned)


def _all_pinned(known: Sequence[Backend], gpus: Sequence[Gpu]) -> tuple[Pinned, ...]:
    return tuple(each for one in list_running(known) for each in _pinned(one, gpus))


def _pinned(environment: Environment, gpus: Sequence[Gpu]) -> Iterator[Pinned]:
    planned = {task.task: task.gpus for task in environment.tasks()}
    # Of another machine's cards nothing is known here.
    known = gpus if environment.is_local else ()
    for task, verdict in evaluate(environment, planned, known).items():
        yield Pinned(environment.project, environment.backend, task, verdict)
