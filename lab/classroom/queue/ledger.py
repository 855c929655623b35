"""The ledger of the queue: what waits, and what has which GPUs or networks.

Environments with GPUs and environments without wait in two lines. Each line serves strictly in the
order of the requests. So a large request at the head gets its GPUs, however many small ones follow.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from lab.backends.classroom.protocol import Order, State
from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.volume.files import write_atomically

START_S: Final = 60.0
"""An estimate of the seconds for the start of containers."""

_LOCAL: Final = "run it in this seat with `--backend local`"


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The environment of a seat; a seat has one at most.

    Attributes:
        seat: Its seat.
        order: What the seat asked for.
        name: Its name in the seat's config.
        project: Its name on the host.
        needs: The number of GPUs that it needs; 0: it runs on CPUs.
        state: Its state.
        gpus: The UUIDs of its GPUs.
        network: The range of its network; "" without containers.
        requested_unix: The time of its request, in seconds since the epoch.
        granted_unix: The begin of its turn.
        up_unix: When all its containers were up: the begin of its slice; 0: not yet.
        ending_unix: When its end began.
        ended_unix: When its containers were removed.
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
    gpus: tuple[str, ...] = ()
    network: str = ""
    requested_unix: float = 0.0
    granted_unix: float = 0.0
    up_unix: float = 0.0
    ending_unix: float = 0.0
    ended_unix: float = 0.0
    reason: str = ""
    released: bool = False
    provenance: dict[str, str] = {}

    @property
    def is_live(self) -> bool:
        """Whether it waits, or has containers."""
        return self.state is not State.ENDED

    @property
    def slice_unix(self) -> float:
        """When its slice begins: when its containers are up; until then, an estimate."""
        return self.up_unix or self.granted_unix + START_S


Entries = tuple[Entry, ...]
"""All environments, in the order of their requests."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the queue has to give.

    Attributes:
        gpus: The UUIDs of the GPUs.
        gpu_networks: The ranges for environments with GPUs, at least one for each GPU.
        cpu_networks: The ranges for environments without; their number is the limit of these.
        slice_s: The longest time that a turn trains if others wait, in seconds.
    """

    gpus: tuple[str, ...]
    gpu_networks: tuple[str, ...]
    cpu_networks: tuple[str, ...]
    slice_s: float


@dataclass(frozen=True, slots=True)
class Wait:
    """The place of a waiting environment.

    Attributes:
        position: The place in its line, from 1.
        seconds: An estimate of the time until its turn: every turn before it lasts a whole slice.
    """

    position: int
    seconds: float


def added(entries: Entries, entry: Entry, capacity: Capacity) -> Entries:
    """Return the entries with a new one at the end of its line, in place of the seat's ended one.

    Raises:
        InputError: Its seat has a live environment, or the queue never has what it needs.
    """
    old = next((each for each in entries if each.seat == entry.seat), None)
    if old is not None and old.is_live:
        raise InputError(
            f"this seat has the environment {old.name!r} in the queue already ({old.state})",
            f"wait for its end, or remove it with `lab down {old.name}`",
        )
    if entry.needs > len(capacity.gpus):
        has = len(capacity.gpus) or "none"
        way = "use a smaller config" if capacity.gpus else _LOCAL
        raise InputError(
            f"{entry.name!r} needs {counted(entry.needs, 'GPU')}, and the queue has {has}",
            f"{way}, or `--gpus none` for CPUs only" if capacity.cpu_networks else way,
        )
    if not entry.needs and not capacity.cpu_networks:
        raise InputError(
            f"{entry.name!r} uses no GPU, and the queue of this class is only for GPUs",
            f"{_LOCAL}; the teacher can allow such runs with `cpu_runs` in class.yaml",
        )
    return (*removed(entries, entry.seat), entry)


def changed(entries: Entries, seat: str, **fields: object) -> Entries:
    """Return the entries with changed fields of a seat's; if it has none, nothing changes."""
    return tuple(
        msgspec.structs.replace(each, **fields) if each.seat == seat else each for each in entries
    )


def removed(entries: Entries, seat: str) -> Entries:
    """Return the entries without that of a seat."""
    return tuple(each for each in entries if each.seat != seat)


def granted(entries: Entries, capacity: Capacity, now: float) -> Entries:
    """Return the entries after every grant that is possible now."""
    for line in _lines(entries, capacity):
        for entry in line.waiting:
            given = line.take(entry)
            if given is None:
                break  # no other one passes it
            gpus, network = given
            entries = changed(
                entries,
                entry.seat,
                state=State.GRANTED,
                gpus=gpus,
                network=network,
                granted_unix=now,
            )
    return entries


def overdue(entries: Entries, capacity: Capacity, now: float) -> list[Entry]:
    """Return the environments whose turn must end now, so that the first one that waits begins."""
    return [entry for line in _lines(entries, capacity) for entry in line.overdue(now)]


def waits(entries: Entries, capacity: Capacity, now: float) -> dict[str, Wait]:
    """Return the place of each waiting environment, by its seat."""
    return dict(wait for line in _lines(entries, capacity) for wait in line.waits(now))


def _lines(entries: Entries, capacity: Capacity) -> list[_Line]:
    return [_Line(entries, capacity, with_gpus=with_gpus) for with_gpus in (True, False)]


class _Line:
    """One of the two lines: the environments with GPUs, or those without."""

    def __init__(self, entries: Entries, capacity: Capacity, *, with_gpus: bool) -> None:
        own = [each for each in entries if bool(each.needs) is with_gpus]
        self.waiting = [each for each in own if each.state is State.WAITING]
        self._holding = [each for each in own if each.is_live and each.state is not State.WAITING]
        self._slice_s = capacity.slice_s
        ranges = capacity.gpu_networks if with_gpus else capacity.cpu_networks
        self._gpus = _without(capacity.gpus, (gpu for each in own for gpu in each.gpus))
        self._networks = _without(ranges, (each.network for each in own))
        self._free = len(self._gpus) if with_gpus else len(self._networks)

    def take(self, entry: Entry) -> tuple[tuple[str, ...], str] | None:
        """Take GPUs and a network for an environment; None if too few are free."""
        if entry.needs > len(self._gpus) or not self._networks:
            return None
        gpus, self._gpus = self._gpus[: entry.needs], self._gpus[entry.needs :]
        return tuple(gpus), self._networks.pop(0)

    def overdue(self, now: float) -> Iterator[Entry]:
        """Yield the environments that must end for the first one that waits, the oldest first."""
        if not self.waiting:
            return
        ending = sum(_size(each) for each in self._holding if each.state is State.ENDING)
        missing = _size(self.waiting[0]) - self._free - ending
        late = [
            each
            for each in self._holding
            if each.state is State.UP and now - each.slice_unix >= self._slice_s
        ]
        for entry in sorted(late, key=lambda each: each.granted_unix):
            if missing <= 0:
                return
            missing -= _size(entry)
            yield entry

    def waits(self, now: float) -> Iterator[tuple[str, Wait]]:
        """Yield the place of each waiting environment, by simulating whole turns."""
        free, clock = self._free, now
        ends = [
            (
                now if each.state is State.ENDING else max(now, each.slice_unix + self._slice_s),
                _size(each),
            )
            for each in self._holding
        ]
        heapq.heapify(ends)
        for position, entry in enumerate(self.waiting, 1):
            while free < _size(entry):
                clock, size = heapq.heappop(ends)
                free += size
            free -= _size(entry)
            heapq.heappush(ends, (clock + self._slice_s, _size(entry)))
            yield entry.seat, Wait(position, clock - now)


def _size(entry: Entry) -> int:
    """The number of GPUs of an environment; 1 for a place without GPUs."""
    return entry.needs or 1


def _without(all_: Sequence[str], used: Iterable[str]) -> list[str]:
    taken = set(used)
    return [each for each in all_ if each not in taken]


class Ledger:
    """The entries in their file. Each change is on the disk before it counts.

    Attributes:
        entries: All environments, in the order of their requests.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, or begin an empty ledger.

        Raises:
            LabError: The file is damaged, or of another version of lab.
        """
        self._path = path
        self.entries: Entries = ()
        try:
            self.entries = msgspec.json.decode(path.read_bytes(), type=Entries)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            raise LabError(
                f"the ledger of the queue {path} cannot be read: {error}",
                "the queue sets it aside when it starts again",
            ) from error

    def write(self, entries: Entries) -> bool:
        """Replace the entries, and write them if they differ.

        Returns:
            Whether they differ.

        Raises:
            OSError: The disk is full; the old entries stay.
        """
        if entries == self.entries:
            return False
        write_atomically(self._path, msgspec.json.encode(entries).decode())
        self.entries = entries
        return True

    def find(self, seat: str) -> Entry | None:
        """Return the environment of a seat."""
        return next((each for each in self.entries if each.seat == seat), None)
