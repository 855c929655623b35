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

from lab.backends.classroom.protocol import State
from lab.errors import InputError, LabError
from lab.formatting import counted
from lab.volume.files import write_atomically

LIVE: Final = frozenset({State.WAITING, State.GRANTED, State.UP, State.ENDING})
"""The states of an environment that waits, or has containers."""

KEPT: Final = 2
"""The maximum number of ended environments of a seat whose run volume is kept."""

START_S: Final = 120.0
"""Seconds for the start of containers and TensorFlow, which do not count as part of a slice."""

_LOCAL: Final = "run it in this seat with `--backend local`"
_HOLDING: Final = LIVE - {State.WAITING}


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An environment of a seat.

    Attributes:
        id: Its id.
        seat: Its seat.
        name: Its name in the seat's config.
        project: Its name on the host.
        needs: The number of GPUs that it needs; 0: it runs on CPUs.
        folder: The project's directory in the seat.
        cluster_sha256: The digest of its config, as the seat computes it.
        tensorflow: The TensorFlow version of its tasks.
        state: Its state.
        gpus: The UUIDs of its GPUs.
        network: The range of its network; "" without containers.
        requested_unix: The time of its request, in seconds since the epoch.
        granted_unix: The begin of its turn, in seconds since the epoch.
        stepped_unix: When the service noticed its first step; 0: not yet.
        ended_unix: The end of its turn.
        reason: Why it ended, or "".
        failed: Whether its boot failed.
        collected: Whether it has ended, and its seat has collected all its runs.
        removes: Whether its run volume is removed with its containers.
    """

    id: str
    seat: str
    name: str
    project: str
    needs: int
    folder: str = ""
    cluster_sha256: str = ""
    tensorflow: str = ""
    state: State = State.WAITING
    gpus: tuple[str, ...] = ()
    network: str = ""
    requested_unix: float = 0.0
    granted_unix: float = 0.0
    stepped_unix: float = 0.0
    ended_unix: float = 0.0
    reason: str = ""
    failed: bool = False
    collected: bool = False
    removes: bool = False

    @property
    def is_live(self) -> bool:
        """Whether it waits, or has containers."""
        return self.state in LIVE

    @property
    def slice_unix(self) -> float:
        """When its slice begins: with its first step, or `START_S` after the begin of its turn."""
        latest = self.granted_unix + START_S
        return min(self.stepped_unix or latest, latest)


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
    """Return the entries with a new one at the end of its line.

    Of the ended ones of its seat, the one of the same name and the oldest ones are removed.

    Raises:
        InputError: Its seat has a live environment, or has not collected the runs of one that would
            be removed; or the queue never has what it needs.
    """
    live = next((each for each in entries if each.seat == entry.seat and each.is_live), None)
    if live is not None:
        raise InputError(
            f"this seat has the environment {live.name!r} in the queue already ({live.state})",
            f"wait for its end, or remove it with `lab down {live.name}`",
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
    ended = [each for each in entries if each.seat == entry.seat and not each.is_live]
    for position, each in enumerate(reversed(ended), start=1):
        if each.name == entry.name or position >= KEPT:
            if not (each.collected or each.removes):
                raise InputError(
                    f"the queue keeps runs of {each.name!r} that this seat has not collected",
                    f"collect them with `lab collect`, or remove them with `lab down {each.name}`",
                )
            entries = changed(entries, each.id, removes=True)
    return (*entries, entry)


def changed(entries: Entries, id_: str, **fields: object) -> Entries:
    """Return the entries with changed fields of one entry; an entry that is missing is ignored."""
    return tuple(
        msgspec.structs.replace(each, **fields) if each.id == id_ else each for each in entries
    )


def removed(entries: Entries, id_: str) -> Entries:
    """Return the entries without one."""
    return tuple(each for each in entries if each.id != id_)


def granted(entries: Entries, capacity: Capacity, now: float) -> Entries:
    """Return the entries after every grant that is possible now."""
    for with_gpus in (True, False):
        line = _Line(entries, capacity, with_gpus=with_gpus)
        for entry in line.waiting:
            given = line.take(entry)
            if given is None:
                break  # no other one passes it
            gpus, network = given
            entries = changed(
                entries,
                entry.id,
                state=State.GRANTED,
                gpus=gpus,
                network=network,
                granted_unix=now,
            )
    return entries


def overdue(entries: Entries, capacity: Capacity, now: float) -> list[Entry]:
    """Return the environments whose turn must end now, so that the first one that waits begins."""
    return [
        entry
        for with_gpus in (True, False)
        for entry in _Line(entries, capacity, with_gpus=with_gpus).overdue(now)
    ]


def waits(entries: Entries, capacity: Capacity, now: float) -> dict[str, Wait]:
    """Return the place of each waiting environment, by its id."""
    return {
        id_: wait
        for with_gpus in (True, False)
        for id_, wait in _Line(entries, capacity, with_gpus=with_gpus).waits(now)
    }


class _Line:
    """One of the two lines: the environments with GPUs, or those without."""

    def __init__(self, entries: Entries, capacity: Capacity, *, with_gpus: bool) -> None:
        own = [each for each in entries if bool(each.needs) is with_gpus]
        self.waiting = [each for each in own if each.state is State.WAITING]
        self._holding = [each for each in own if each.state in _HOLDING]
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
            yield entry.id, Wait(position, clock - now)


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
            LabError: The file cannot be read.
        """
        self._path = path
        self.entries: Entries = ()
        try:
            self.entries = msgspec.json.decode(path.read_bytes(), type=Entries)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            raise LabError(
                f"the ledger of the queue {path} cannot be read: {error}",
                "remove the class with `lab class down`",
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

    def find(self, id_: str) -> Entry | None:
        """Return an environment by its id."""
        return next((each for each in self.entries if each.id == id_), None)
