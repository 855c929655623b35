"""The ledger of the queue: the environments that wait, and the GPUs and networks of the others.

An order is checked before it gets a place, and is placed on the GPUs that it gets.

Environments with GPUs and environments without wait in two lines. Each line is served strictly in
the order of requests, so a large request at the head gets its GPUs even if many small ones follow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from pydantic import ValidationError

from lab.base.errors import InputError, LabError
from lab.base.formatting import counted
from lab.base.units import MIB, memory_for_people
from lab.cluster.config import Cluster
from lab.cluster.config.cluster import Box
from lab.cluster.config.validation import validate
from lab.cluster.gpu import Gpu, Inventory
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan, PlannedTask
from lab.protocol.runtimes import RUNTIMES
from lab.protocol.volume.files import write_atomically
from lab.teach.classroom.planning import ClassPlan, SeatPlan
from lab.teach.classroom.protocol import Order, State

_LOCAL: Final = "run it in this seat with `--backend local`"


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The environment of a seat; a seat has one at most.

    Attributes:
        seat: Its seat.
        order: What the seat asked for.
        name: Its name in the seat's config.
        project: Its name on the host.
        needs: The number of GPUs that it needs; 0 if it runs on CPUs.
        state: Its state.
        since_unix: When its state began, in seconds since the epoch.
        gpus: The UUIDs of its GPUs.
        network: The range of its network; "" without containers.
        reason: Why it ends, or "".
        released: Whether its seat has given it back, or it has no run.
        provenance: What really runs, when it is up.
    """

    seat: str
    order: Order
    name: str
    project: str
    needs: int
    state: State = State.WAITING
    since_unix: float = 0.0
    gpus: tuple[str, ...] = ()
    network: str = ""
    reason: str = ""
    released: bool = False
    provenance: dict[str, str] = {}

    @property
    def is_live(self) -> bool:
        """Whether it waits, or has containers."""
        return self.state is not State.ENDED

    @property
    def size(self) -> int:
        """The number of GPUs that it takes; 1 for a place without GPUs."""
        return self.needs or 1


class _Line(NamedTuple):
    """One of the two lines as it is now, with what is free for it."""

    waiting: list[Entry]
    holding: list[Entry]
    gpus: list[str]
    networks: list[str]
    free: int


class Ledger:
    """The environments of the seats in a file. Each change is on the disk before it takes effect.

    A change raises an `OSError` if the disk is full; then the ledger stays as it was.

    Attributes:
        plan: The class, with the GPUs and the networks that the queue can grant.
        entries: The environment of each seat, in the order of their requests.
    """

    def __init__(self, path: Path, plan: ClassPlan) -> None:
        """Read the file; without one, the ledger is empty.

        Raises:
            LabError: The file is damaged, or of another version of lab.
        """
        self._path = path
        self.plan = plan
        self.entries: dict[str, Entry] = {}
        try:
            self.entries = msgspec.json.decode(path.read_bytes(), type=dict[str, Entry])
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise LabError(
                f"the ledger of the queue {path} cannot be read: {error}",
                "remove it: the queue then ends all its runs and starts empty",
            ) from error

    def add(self, entry: Entry) -> None:
        """Add an environment at the end of its line, in place of the seat's ended one.

        Raises:
            InputError: Its seat has a live environment, or the queue can never grant what it needs.
        """
        gpus = self.plan.queue_gpus
        old = self.entries.get(entry.seat)
        if old is not None and old.is_live:
            raise InputError(
                f"this seat already has the environment {old.name!r} in the queue ({old.state})",
                f"wait until it ends, or remove it with `lab down {old.name}`",
            )
        if entry.needs > len(gpus):
            needs = counted(entry.needs, "GPU")
            problem = f"{entry.name!r} needs {needs}, but the queue has {len(gpus) or 'none'}"
            raise InputError(problem, f"use a smaller config, or {_LOCAL}")
        if not entry.needs and len(self.plan.run_networks) == len(gpus):
            raise InputError(
                f"{entry.name!r} uses no GPU, but the queue of this class is only for GPUs",
                f"{_LOCAL}; the teacher can allow such runs with `cpu_runs` in class.yaml",
            )
        self._write({**self._without(entry.seat), entry.seat: entry})

    def change(self, seat: str, **fields: object) -> None:
        """Change fields of the environment of a seat."""
        new = msgspec.structs.replace(self.entries[seat], **fields)
        self._write({**self.entries, seat: new})

    def enter(self, seat: str, state: State, now: float, **fields: object) -> None:
        """Change the state of the environment of a seat, with other fields."""
        self.change(seat, state=state, since_unix=now, **fields)

    def remove(self, seat: str) -> None:
        """Remove the environment of a seat, which has no containers."""
        self._write(self._without(seat))

    def grant(self, now: float) -> None:
        """Grant everything that is possible now. No environment overtakes another in its line."""
        for with_gpus in (True, False):
            line = self._line(with_gpus=with_gpus)
            while line.waiting and line.waiting[0].size <= line.free:
                first = line.waiting[0]
                gpus, network = tuple(line.gpus[: first.needs]), line.networks[0]
                self.enter(first.seat, State.GRANTED, now, gpus=gpus, network=network)
                line = self._line(with_gpus=with_gpus)

    def overdue(self, now: float) -> list[Entry]:
        """Return the environments that must end now so that the first waiting one can begin.

        The oldest turns end, and no more of them than it needs.
        """
        late = []
        for line in self._lines():
            ending = sum(turn.size for turn in line.holding if turn.state is State.ENDING)
            missing = line.waiting[0].size - line.free - ending if line.waiting else 0
            for entry in sorted(line.holding, key=lambda turn: turn.since_unix):
                is_late = now - entry.since_unix >= self.plan.slice_s
                if missing > 0 and entry.state is State.UP and is_late:
                    missing -= entry.size
                    late.append(entry)
        return late

    def positions(self) -> dict[str, int]:
        """Return the place of each waiting environment in its line, from 1, by its seat."""
        return {
            entry.seat: position
            for line in self._lines()
            for position, entry in enumerate(line.waiting, 1)
        }

    def _lines(self) -> list[_Line]:
        return [self._line(with_gpus=True), self._line(with_gpus=False)]

    def _line(self, *, with_gpus: bool) -> _Line:
        own = [entry for entry in self.entries.values() if bool(entry.needs) is with_gpus]
        used = {part for entry in own for part in (*entry.gpus, entry.network)}
        gpus, networks = self.plan.queue_gpus, [*map(str, self.plan.run_networks)]
        networks = networks[: len(gpus)] if with_gpus else networks[len(gpus) :]
        free_gpus = [gpu for gpu in gpus if gpu not in used]
        free_networks = [network for network in networks if network not in used]
        return _Line(
            waiting=[entry for entry in own if entry.state is State.WAITING],
            holding=[entry for entry in own if entry.is_live and entry.state is not State.WAITING],
            gpus=free_gpus,
            networks=free_networks,
            free=len(free_gpus if with_gpus else free_networks),
        )

    def _without(self, seat: str) -> dict[str, Entry]:
        return {name: entry for name, entry in self.entries.items() if name != seat}

    def _write(self, entries: dict[str, Entry]) -> None:
        if entries != self.entries:
            write_atomically(self._path, msgspec.json.encode(entries).decode())
            self.entries = entries


MAX_CONFIG_CHARACTERS: Final = 1 << 14
"""The maximum size of a config; any config of this size is read in less than a second."""

MAX_NODES: Final = 13
"""The maximum number of nodes: a /28 has 14 addresses, and the host has one."""

MAX_TASKS: Final = 32

_LEAST_BYTES: Final = 64 * MIB
_PROJECT_CHARACTERS: Final = 24  # with a hyphen and six more, 31
_ID: Final = re.compile("[0-9a-f]{16}")
_MAX_PATH: Final = 1000
_UPDATE: Final = "update lab in the seat"


def project_name(class_name: str, seat: str) -> str:
    """Return the name on the host of a seat's environment, at most 31 characters."""
    digest = hashlib.sha256(f"{class_name}\0{seat}".encode()).hexdigest()
    return f"{f'{class_name}-{seat}'[:_PROJECT_CHARACTERS]}-{digest[:6]}"


def admitted(order: Order, class_name: str, seat: str, now_unix: float) -> Entry:
    """Return the entry for a seat's order at a time, in seconds since the epoch.

    Raises:
        InputError: A part of the order is invalid, or too large for a queue.
    """
    cluster = cluster_of(order.config)
    if order.runtime not in RUNTIMES:
        raise InputError(f"no framework {order.runtime!r}", f"use one of {', '.join(RUNTIMES)}")
    if not _ID.fullmatch(order.id):
        raise InputError("the id is invalid", _UPDATE)
    # What is at the path does not matter: it belongs to the seat.
    for path in (order.folder, order.directory):
        if len(path) > _MAX_PATH or not path.isprintable() or not path.startswith("/"):
            raise InputError(f"not a path in the seat: {path!r}", "use a shorter path")
    return Entry(
        order=order,
        seat=seat,
        name=cluster.name,
        project=project_name(class_name, seat),
        needs=sum(node.gpu_count for node in cluster.nodes.values()) if order.with_gpus else 0,
        since_unix=now_unix,
    )


def cluster_of(config: str) -> Cluster:
    """Return the cluster of a config; a list of GPU indices counts as its length.

    The config is JSON: the seat reads the YAML, which is slow and can be made slower.

    Raises:
        InputError: The config is invalid, is too large for a queue, or names GPUs by UUID.
    """
    if len(config) > MAX_CONFIG_CHARACTERS:
        raise InputError(
            f"the cluster config has more than {MAX_CONFIG_CHARACTERS:,} characters",
            "use fewer nodes",
        )
    try:
        cluster = Cluster.model_validate(msgspec.json.decode(config))
    except (msgspec.MsgspecError, RecursionError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise InputError(f"the cluster config is invalid: {first}", _UPDATE) from error
    if (problem := next(validate(cluster), None)) is not None:
        raise InputError(f"the cluster config is invalid: {problem.text()}", _UPDATE)
    tasks = sum(len(job.on) for job in cluster.jobs.values())
    counts = {"nodes": (len(cluster.nodes), MAX_NODES), "tasks": (tasks, MAX_TASKS)}
    for noun, (count, limit) in counts.items():
        if count > limit:
            raise InputError(
                f"the cluster has {count} {noun}, and the queue allows {limit}",
                "use a smaller config",
            )
    for name, node in cluster.nodes.items():
        if any(isinstance(pin, str) for pin in node.pins):
            raise InputError(
                f"nodes.{name}.gpus names a GPU by its UUID, but the queue chooses the GPUs",
                f"use their number: `gpus: {node.gpu_count}`",
            )
    return cluster.with_gpu_counts().model_copy(update={"box": Box()})


def plan_of(entry: Entry, host: Inventory, seat: SeatPlan) -> Plan:
    """Place the cluster of an entry on its GPUs, within the limits of its seat.

    Args:
        entry: The entry.
        host: This host. Its driver may not list a GPU; then the boot reports the lost GPU.
        seat: The limits.

    Raises:
        LabError: The cluster does not fit.
    """
    known = {gpu.device_id: gpu for gpu in host.gpus}
    gpus = tuple(known.get(gpu, Gpu(at, gpu)) for at, gpu in enumerate(entry.gpus))
    mode = "uuid" if gpus else "none"
    plan = place(cluster_of(entry.order.config), replace(host, mode=mode, gpus=gpus, notices=()))
    return replace(
        plan,
        name=entry.project,
        runtime=entry.order.runtime,
        tasks=_limited(plan.tasks, seat),
    )


def _limited(tasks: Sequence[PlannedTask], seat: SeatPlan) -> tuple[PlannedTask, ...]:
    """Limit each task to an equal part of the seat's CPUs and memory.

    No task is pinned to CPUs: the environments of several seats run at the same time.
    """
    cpus = None if seat.cpus is None else seat.cpus / len(tasks)
    memory = None if seat.memory_bytes is None else seat.memory_bytes // len(tasks)
    if memory is not None and memory < _LEAST_BYTES:
        raise InputError(
            f"the seat's memory gives each task {memory_for_people(memory)}, and a task needs"
            f" {memory_for_people(_LEAST_BYTES)}",
            "use fewer tasks",
        )
    return tuple(
        replace(
            task,
            cpuset=None,
            cpus=min(filter(None, (task.cpus, cpus)), default=None),
            memory_bytes=min(filter(None, (task.memory_bytes, memory)), default=None),
        )
        for task in tasks
    )
