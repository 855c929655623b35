"""Gives the seats their turns: boots, ends and removes environments as the ledger says.

All changes of the ledger happen in the event loop. What blocks runs in threads. Every step can be
repeated, so a service that was killed continues where the ledger is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from lab.backends.classroom.protocol import NO_FOLLOW_S, Gone, Order, State, Status
from lab.backends.state import Busy
from lab.classroom.queue.admission import admitted
from lab.classroom.queue.host import Host
from lab.classroom.queue.ledger import (
    Capacity,
    Entries,
    Entry,
    Ledger,
    added,
    changed,
    granted,
    overdue,
    removed,
    waits,
)
from lab.errors import InputError, LabError
from lab.formatting import about
from lab.log import LOG, passed_on
from lab.volume.files import write_atomically

_MAX_RETRY_S: Final = 300.0
_BOOTS: Final = 4
"""The number of times that a boot is begun while an earlier service still boots the environment."""

_MAX_LINES: Final = 500
_THREADS: Final = 32
_SEAT_THREADS: Final = 8
"""The threads for what seats ask: they wait for no boot, and no boot waits for them."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of the queue, in seconds.

    Attributes:
        idle_s: Without a program and without a request, an environment ends after this time.
        keep_s: An ended environment is shown to its seat for this time.
        no_follow_s: Without a request, a waiting environment loses its place after this time.
        grace_s: At the end of its turn, a seat has this time to cancel and collect its run.
        follows_s: A seat that has not asked for this time does not follow its run.
        tick_s: The time between two looks at the ledger.
        check_s: The time between two checks of an environment.
        retry_s: The time until a step that failed is repeated; it doubles with each failure.
    """

    idle_s: float = 120.0
    keep_s: float = 3600.0
    no_follow_s: float = NO_FOLLOW_S
    grace_s: float = 20.0
    follows_s: float = 10.0
    tick_s: float = 1.0
    check_s: float = 15.0
    retry_s: float = 5.0


class Turns:
    """The environments of the seats, and their turns.

    Attributes:
        ledger: The ledger.
        revision: A number that changes with each change.
        delays: The delays.
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        capacity: Capacity,
        folder: Path,
        host: Host,
        *,
        clock: Callable[[], float] = time.time,
        delays: Delays = Delays(),
    ) -> None:
        """Make the turns of one class.

        Args:
            name: The class.
            ledger: Its ledger.
            capacity: What the queue has to give.
            folder: The directory for the configs.
            host: Boots and ends the containers.
            clock: Returns seconds since the epoch.
            delays: The delays.
        """
        self.ledger = ledger
        self.delays = delays
        self.revision = int(clock() * 1000)  # differs from that of an earlier service
        self._name, self._capacity, self._folder = name, capacity, folder
        self._host, self._clock = host, clock
        self._steps = ThreadPoolExecutor(_THREADS, "queue")
        self._of_seats = ThreadPoolExecutor(_SEAT_THREADS, "seats")
        self._changed = asyncio.Event()
        self._contacts: dict[str, float] = {}
        self._lines: dict[str, list[str]] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._checked: dict[str, float] = {}
        self._began = time.monotonic()

    # What a seat does.

    async def order(self, order: Order, seat: str) -> Entry:
        """Give a seat a place in the queue; an order that is repeated changes nothing.

        Raises:
            InputError: The order is invalid, or the seat has a place already.
        """
        if not self._knows(order, seat):
            entry = await _in_thread(
                self._of_seats, admitted, order, self._name, seat, self._clock()
            )
            if not self._knows(order, seat):  # the same order may have come twice meanwhile
                self._add(entry, order.config)
        return self.find(seat)

    def _add(self, entry: Entry, config: str) -> None:
        entries = added(self.ledger.entries, entry, self._capacity)
        self._drop(entry.seat)
        write_atomically(self._config(entry.seat), config)
        self._write(entries)
        self._contacts[entry.seat] = time.monotonic()
        self.advance()

    def _knows(self, order: Order, seat: str) -> bool:
        known = self.ledger.find(seat)
        return known is not None and known.id == order.id

    def find(self, seat: str) -> Entry:
        """Return the environment of a seat, and note that the seat asked for it.

        Raises:
            Gone: The seat has none.
        """
        entry = self.ledger.find(seat)
        if entry is None:
            raise Gone("the queue has no environment of this seat", "see `lab ls`")
        self._contacts[seat] = time.monotonic()
        return entry

    def give_back(self, entry: Entry) -> None:
        """End an environment for its seat, at once."""
        if entry.state in {State.WAITING, State.ENDED}:
            self._forget(entry.seat)
        elif entry.state is State.ENDING:
            self._write(changed(self.ledger.entries, entry.seat, released=True))
        else:
            self._end(entry, "its seat removed it", released=True)
        self.advance()

    def end(self, seat: str) -> None:
        """End the environment of a seat for the teacher; its seat may still collect the run."""
        entry = self.ledger.find(seat)
        if entry is not None and entry.state in {State.WAITING, State.ENDED}:
            self._forget(seat)
        elif entry is not None and entry.state is not State.ENDING:
            self._end(entry, "the teacher ended it")
        self.advance()

    async def inject_fault(self, entry: Entry, node: str, arguments: tuple[str, ...]) -> None:
        """Inject a fault into the network of a node.

        Raises:
            LabError: The environment is not up, or the engine refuses.
        """
        if entry.state is not State.UP:
            raise InputError(f"environment {entry.name!r} is {entry.state}", "see `lab ls`")
        await _in_thread(self._of_seats, self._host.inject_fault, entry.project, node, arguments)

    def status(self, entry: Entry) -> Status:
        """Return the status of an environment for its seat."""
        wait = waits(self.ledger.entries, self._capacity, self._clock()).get(entry.seat)
        return Status(
            id=entry.id,
            name=entry.name,
            state=entry.state,
            position=wait.position if wait else 0,
            wait_s=wait.seconds if wait else 0.0,
            reason=entry.reason,
            lines=tuple(self._lines.get(entry.seat, ())),
            provenance=entry.provenance,
            revision=self.revision,
        )

    async def changes(self, revision: int, within_s: float) -> None:
        """Wait until the revision is another one, with a time limit in seconds."""
        if self.revision == revision:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), within_s)

    # The turns.

    async def run(self) -> None:
        """Give turns until this is cancelled."""
        while True:
            self.advance()
            await asyncio.sleep(self.delays.tick_s)

    async def finish_steps(self, within_s: float) -> None:
        """Wait until no step is under way, with a time limit in seconds."""
        if self._working:
            await asyncio.wait(self._working.values(), timeout=within_s)

    def advance(self) -> None:
        """Give every turn that is possible now, end those that are over, and start their work."""
        try:
            self._write(self._next_entries())
        except OSError as error:
            LOG.error(f"the ledger cannot be written: {error}")
            return
        for entry in self.ledger.entries:
            self._start_work(entry)

    def _next_entries(self) -> Entries:
        entries, now = self.ledger.entries, self._clock()
        for entry in entries:
            if entry.state is State.WAITING and self._silence_s(entry) > self.delays.no_follow_s:
                LOG.info(f"{entry.seat}: {entry.name} left the queue")
                entries = removed(entries, entry.seat)
            if entry.state is State.ENDED and now - entry.ended_unix > self.delays.keep_s:
                entries = removed(entries, entry.seat)
        entries = granted(entries, self._capacity, now)
        reason = f"its turn of {about(self._capacity.slice_s)} has ended"
        for entry in overdue(entries, self._capacity, now):
            entries = changed(
                entries, entry.seat, state=State.ENDING, ending_unix=now, reason=reason
            )
        return entries

    def _start_work(self, entry: Entry) -> None:
        seat = entry.seat
        if seat in self._working or time.monotonic() < self._not_before.get(seat, 0.0):
            return
        work: Callable[[Entry], Coroutine[Any, Any, None]]
        if entry.state is State.GRANTED:
            work = self._boot
        elif entry.state is State.ENDING and self._may_finish(entry):
            work = self._finish
        elif entry.state is State.UP and self._is_due(seat):
            work = self._check
        else:
            return
        self._working[seat] = asyncio.create_task(self._work(work, entry))

    async def _work(self, work: Callable[[Entry], Coroutine[Any, Any, None]], entry: Entry) -> None:
        seat = entry.seat
        try:
            await work(entry)
            self._failures.pop(seat, None)
        except Exception as error:  # noqa: BLE001  (one environment must not stop the others)
            count = self._failures[seat] = self._failures.get(seat, 0) + 1
            delay_s = min(self.delays.retry_s * 2 ** (count - 1), _MAX_RETRY_S)
            self._not_before[seat] = time.monotonic() + delay_s
            expected = isinstance(error, LabError | OSError)
            what = f"{error}; trying again in {about(delay_s)}"
            LOG.warning(f"{entry.project}: {what}", exc_info=None if expected else error)
            self._note(seat, what)
        finally:
            del self._working[seat]
        self.advance()

    async def _boot(self, entry: Entry) -> None:
        loop, seat = asyncio.get_running_loop(), entry.seat

        def report(line: str) -> None:
            loop.call_soon_threadsafe(self._note, seat, line)

        within = about(self._capacity.slice_s)
        self._note(seat, f"the turn has begun; if others wait, it ends after {within}")
        try:
            ran = await _in_thread(self._steps, self._boot_now, entry, report)
        except Busy:
            # An earlier service still boots it.
            if self._failures.get(seat, 0) < _BOOTS - 1:
                raise
            self._end(entry, "an earlier boot of it does not end", released=True)
        except Exception as error:  # noqa: BLE001  (whatever it is, the GPUs are given back)
            expected = isinstance(error, LabError)
            LOG.warning(f"{entry.project}: {error}", exc_info=None if expected else error)
            reason = str(error) if expected else "the boot failed; the teacher has the log"
            self._end(entry, reason, released=True)
        else:
            if self._current(entry).state is State.GRANTED:
                up = {"state": State.UP, "up_unix": self._clock(), "provenance": ran}
                self._write(changed(self.ledger.entries, seat, **up))

    def _boot_now(self, entry: Entry, report: Callable[[str], None]) -> dict[str, str]:
        config = self._config(entry.seat).read_text(encoding="utf-8")
        with passed_on(report):
            return self._host.boot(entry, config)

    def _may_finish(self, entry: Entry) -> bool:
        """Whether its seat has given it back, does not follow its run, or had enough time."""
        return (
            entry.released
            or self._silence_s(entry) > self.delays.follows_s
            or self._clock() - entry.ending_unix > self.delays.grace_s
        )

    async def _finish(self, entry: Entry) -> None:
        """Remove the containers. The agents let the programs save first."""
        await _in_thread(self._steps, self._host.end, entry.project)
        ended = {"state": State.ENDED, "gpus": (), "network": "", "ended_unix": self._clock()}
        self._write(changed(self.ledger.entries, entry.seat, **ended))

    async def _check(self, entry: Entry) -> None:
        """End an environment whose containers ended, or that is not used."""
        self._checked[entry.seat] = time.monotonic()
        idle_s, reason = self.delays.idle_s, ""
        if not await _in_thread(self._steps, self._host.runs, entry.project):
            reason = "its containers have ended; the host may have been restarted"
        elif self._silence_s(entry) > idle_s and not await _in_thread(
            self._steps, self._host.is_used, entry.project
        ):
            reason = f"it was idle for {about(idle_s)}"
        if reason and (current := self._current(entry)).state is State.UP:
            self._end(current, reason)

    def _is_due(self, seat: str) -> bool:
        return time.monotonic() - self._checked.get(seat, self._began) > self.delays.check_s

    # The ledger.

    def _end(self, entry: Entry, reason: str, *, released: bool = False) -> None:
        ending = {"state": State.ENDING, "ending_unix": self._clock()}
        self._write(
            changed(self.ledger.entries, entry.seat, reason=reason, released=released, **ending)
        )

    def _forget(self, seat: str) -> None:
        self._write(removed(self.ledger.entries, seat))

    def _write(self, entries: Entries) -> None:
        before = {each.seat for each in self.ledger.entries}
        if self.ledger.write(entries):
            for seat in before - {each.seat for each in entries}:
                self._drop(seat)
                self._config(seat).unlink(missing_ok=True)
            self._bump()

    def _drop(self, seat: str) -> None:
        """Drop what is known of the last environment of a seat."""
        for known in (self._contacts, self._lines, self._failures, self._not_before, self._checked):
            known.pop(seat, None)

    def _note(self, seat: str, line: str) -> None:
        """Add a line for a seat."""
        lines = self._lines.setdefault(seat, [])
        if len(lines) < _MAX_LINES:
            lines.append(line)
            self._bump()

    def _bump(self) -> None:
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _current(self, entry: Entry) -> Entry:
        return self.ledger.find(entry.seat) or entry

    def _config(self, seat: str) -> Path:
        return self._folder / f"{seat}.json"

    def _silence_s(self, entry: Entry) -> float:
        return time.monotonic() - self._contacts.get(entry.seat, self._began)


async def _in_thread(pool: ThreadPoolExecutor, function: Callable[..., T], *arguments: object) -> T:
    """Call a function that blocks, in a thread."""
    return await asyncio.get_running_loop().run_in_executor(pool, partial(function, *arguments))
