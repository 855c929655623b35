"""The ledger of the queue: the environments that wait, and the GPUs and networks of the others.

Environments with GPUs and environments without wait in two lines. Each line is served strictly in
the order of requests, so a large request at the head gets its GPUs even if many small ones follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from lab.backends.classroom.protocol import Order, State
from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.volume.files import write_atomically

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


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the queue can grant.

    Attributes:
        gpus: The UUIDs of the GPUs.
        networks: A range for each GPU, then one for each place without GPUs.
        slice_s: The longest time that a turn trains if others wait, in seconds.
    """

    gpus: tuple[str, ...]
    networks: tuple[str, ...]
    slice_s: float


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
        capacity: What the queue can grant.
        entries: The environment of each seat, in the order of their requests.
    """

    def __init__(self, path: Path, capacity: Capacity) -> None:
        """Read the file; without one, the ledger is empty.

        Raises:
            LabError: The file is damaged, or of another version of lab.
        """
        self._path = path
        self.capacity = capacity
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
        gpus = self.capacity.gpus
        old = self.entries.get(entry.seat)
        if old is not None and old.is_live:
            raise InputError(
                f"this seat has the environment {old.name!r} in the queue already ({old.state})",
                f"wait for its end, or remove it with `lab down {old.name}`",
            )
        if entry.needs > len(gpus):
            needs = counted(entry.needs, "GPU")
            problem = f"{entry.name!r} needs {needs}, and the queue has {len(gpus) or 'none'}"
            raise InputError(problem, f"use a smaller config, or {_LOCAL}")
        if not entry.needs and len(self.capacity.networks) == len(gpus):
            raise InputError(
                f"{entry.name!r} uses no GPU, and the queue of this class is only for GPUs",
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
                is_late = now - entry.since_unix >= self.capacity.slice_s
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
        gpus, networks = self.capacity.gpus, self.capacity.networks
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
