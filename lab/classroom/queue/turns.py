"""Gives the seats their turns: boots, ends and removes environments as the ledger says.

All changes of the ledger happen in the event loop. What blocks runs in threads. Every step can be
repeated, so a service that was killed continues where the ledger is.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from lab.backends.classroom.protocol import Gone, Order, State, Status
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

_MAX_RETRY_S: Final = 300.0
_BOOTS: Final = 4
"""The number of times that a boot is begun while an earlier service still boots the environment."""

_MAX_LINES: Final = 100
_THREADS: Final = 1024
"""A seat has a step, an order and a fault at most, so none waits for that of another seat."""

_CLOSED_S: Final = 60.0
"""Seconds for which a seat cannot order, after the teacher has ended its environment: a reset."""

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
    no_follow_s: float = 60.0
    grace_s: float = 20.0
    follows_s: float = 10.0
    tick_s: float = 1.0
    check_s: float = 15.0
    retry_s: float = 5.0


@dataclass
class _Memory:
    """What the service remembers of the environment of a seat, besides its entry.

    Attributes:
        lines: The progress of its boot.
        contact_s: When the seat last asked for it.
        checked_s: When its containers were last checked.
        failures: The number of steps that failed in its state, one after the other.
        not_before_s: When the next step may begin.
    """

    lines: list[str] = field(default_factory=list)
    contact_s: float = field(default_factory=time.monotonic)
    checked_s: float = field(default_factory=time.monotonic)
    failures: int = 0
    not_before_s: float = 0.0


class Turns:
    """The environments of the seats, and their turns.

    Attributes:
        ledger: The ledger.
        delays: The delays.
    """

    def __init__(
        self,
        name: str,
        ledger: Ledger,
        capacity: Capacity,
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
            host: Boots and ends the containers.
            clock: Returns seconds since the epoch.
            delays: The delays.
        """
        self.ledger = ledger
        self.delays = delays
        self._name, self._capacity, self._host, self._clock = name, capacity, host, clock
        self._threads = ThreadPoolExecutor(_THREADS, "queue")
        self._closed: dict[str, float] = {}
        self._memory: dict[str, _Memory] = defaultdict(_Memory)
        self._working: dict[str, asyncio.Task[None]] = {}

    # What a seat does.

    async def order(self, order: Order, seat: str) -> Entry:
        """Give a seat a place in the queue; an order that is repeated changes nothing.

        Raises:
            InputError: The order is invalid, or the seat has a place already.
        """
        if time.monotonic() < self._closed.get(seat, 0.0):
            raise InputError("the teacher ends the runs of this seat now", "try again later")
        known = self.ledger.find(seat)
        if known is None or known.order.id != order.id:
            entry = await self._in_thread(admitted, order, self._name, seat, self._clock())
            entries = added(self.ledger.entries, entry, self._capacity)
            self._memory.pop(seat, None)
            self._write(entries)
            self.advance()
        return self.find(seat)

    def find(self, seat: str) -> Entry:
        """Return the environment of a seat, and note that the seat asked for it.

        Raises:
            Gone: The seat has none.
        """
        entry = self.ledger.find(seat)
        if entry is None:
            raise Gone("the queue has no environment of this seat", "see `lab ls`")
        self._memory[seat].contact_s = time.monotonic()
        return entry

    def give_back(self, seat: str, identity: str) -> bool:
        """End an environment for its seat, at once; return whether it still has containers.

        Raises:
            Gone: The seat has no such environment, but perhaps one that came after it.
        """
        if self.find(seat).order.id != identity:
            raise Gone("the queue has another environment of this seat", "see `lab ls`")
        return self._leave(seat, "its seat removed it", released=True)

    def end(self, seat: str) -> bool:
        """End the environment of a seat for the teacher; return whether it still has containers.

        The seat may still collect the run. For a time, it cannot order again.
        """
        self._closed[seat] = time.monotonic() + _CLOSED_S
        return self._leave(seat, "the teacher ended it", released=False)

    def _leave(self, seat: str, reason: str, *, released: bool) -> bool:
        entry = self.ledger.find(seat)
        if entry is None:
            return False
        if entry.state is State.WAITING or (released and entry.state is State.ENDED):
            self._write(removed(self.ledger.entries, seat))
        elif entry.state is State.ENDING:
            if released:
                self._write(changed(self.ledger.entries, seat, released=True))
        elif entry.is_live:
            self._end(entry, reason, released=released)
        self.advance()
        found = self.ledger.find(seat)
        return found is not None and found.is_live

    async def inject_fault(self, seat: str, node: str, arguments: tuple[str, ...]) -> None:
        """Inject a fault into the network of a node.

        Raises:
            LabError: The environment is not up, or the engine refuses.
        """
        entry = self.find(seat)
        if entry.state is not State.UP:
            raise InputError(f"environment {entry.name!r} is {entry.state}", "see `lab ls`")
        await self._in_thread(self._host.inject_fault, entry.project, node, arguments)

    def status(self, entry: Entry) -> Status:
        """Return the status of an environment for its seat."""
        wait = waits(self.ledger.entries, self._capacity, self._clock()).get(entry.seat)
        return Status(
            id=entry.order.id,
            state=entry.state,
            position=wait.position if wait else 0,
            wait_s=wait.seconds if wait else 0.0,
            reason=entry.reason,
            lines=tuple(self._memory[entry.seat].lines),
            provenance=entry.provenance,
        )

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
        seat, memory = entry.seat, self._memory[entry.seat]
        if seat in self._working or time.monotonic() < memory.not_before_s:
            return
        work: Callable[[Entry], Coroutine[Any, Any, None]]
        if entry.state is State.GRANTED:
            work = self._boot
        elif entry.state is State.ENDING and self._may_finish(entry):
            work = self._finish
        elif entry.state is State.UP and time.monotonic() - memory.checked_s > self.delays.check_s:
            work = self._check
        else:
            return
        self._working[seat] = asyncio.create_task(self._work(work, entry))

    async def _work(self, work: Callable[[Entry], Coroutine[Any, Any, None]], entry: Entry) -> None:
        try:
            await work(entry)
            self._memory[entry.seat].failures = 0
        except Exception as error:  # noqa: BLE001  (one environment must not stop the others)
            self._fail(entry, error)
        finally:
            del self._working[entry.seat]
        self.advance()

    def _fail(self, entry: Entry, error: Exception) -> None:
        """Repeat a step that failed, later; but end a failed boot, which gives its GPUs back."""
        memory, what = self._memory[entry.seat], str(error)
        delay_s = min(self.delays.retry_s * 2 ** min(memory.failures, 8), _MAX_RETRY_S)
        # An earlier service still boots it.
        waits_for_boot = isinstance(error, Busy) and memory.failures < _BOOTS - 1
        if entry.state is State.GRANTED and not waits_for_boot:
            # Without its hint, which is for the teacher, as is the log.
            reason = error.what if isinstance(error, LabError) else "the boot failed"
            self._end(entry, reason, released=True)
        elif self._current(entry).state is entry.state:  # the end of a turn waits for no check
            what = f"{error}; trying again in {about(delay_s)}"
            memory.failures += 1
            memory.not_before_s = time.monotonic() + delay_s
            self._note(entry.seat, what)
        expected = isinstance(error, LabError | OSError)
        LOG.warning(f"{entry.project}: {what}", exc_info=None if expected else error)

    async def _boot(self, entry: Entry) -> None:
        loop, seat = asyncio.get_running_loop(), entry.seat

        def report(line: str) -> None:
            loop.call_soon_threadsafe(self._note, seat, line)

        def boot() -> dict[str, str]:
            with passed_on(report):
                return self._host.boot(entry)

        within = about(self._capacity.slice_s)
        self._note(seat, f"the turn has begun; if others wait, it ends after {within}")
        ran = await self._in_thread(boot)
        if self._current(entry).state is State.GRANTED:
            up = {"state": State.UP, "up_unix": self._clock(), "provenance": ran}
            self._write(changed(self.ledger.entries, seat, **up))

    def _may_finish(self, entry: Entry) -> bool:
        """Whether its seat has given it back, does not follow its run, or had enough time."""
        return (
            entry.released
            or self._silence_s(entry) > self.delays.follows_s
            or self._clock() - entry.ending_unix > self.delays.grace_s
        )

    async def _finish(self, entry: Entry) -> None:
        """Remove the containers. The agents let the programs save first."""
        await self._in_thread(self._host.end, entry.project)
        ended = {"state": State.ENDED, "gpus": (), "network": "", "ended_unix": self._clock()}
        self._write(changed(self.ledger.entries, entry.seat, **ended))

    async def _check(self, entry: Entry) -> None:
        """End an environment whose containers ended, or that is not used."""
        self._memory[entry.seat].checked_s = time.monotonic()
        idle_s, reason = self.delays.idle_s, ""
        if not await self._in_thread(self._host.runs, entry.project):
            reason = "its containers have ended; the host may have been restarted"
        elif self._silence_s(entry) > idle_s and not await self._in_thread(
            self._host.is_used, entry.project
        ):
            reason = f"it was idle for {about(idle_s)}"
        if reason and (current := self._current(entry)).state is State.UP:
            self._end(current, reason)

    # The ledger.

    def _end(self, entry: Entry, reason: str, *, released: bool = False) -> None:
        ending = {"state": State.ENDING, "ending_unix": self._clock()}
        self._write(
            changed(self.ledger.entries, entry.seat, reason=reason, released=released, **ending)
        )

    def _write(self, entries: Entries) -> None:
        before = {each.seat: each.state for each in self.ledger.entries}
        if not self.ledger.write(entries):
            return
        after = {each.seat: each.state for each in entries}
        for seat, state in before.items():
            if seat not in after:
                self._memory.pop(seat, None)
            elif after[seat] is not state:
                self._memory[seat].failures, self._memory[seat].not_before_s = 0, 0.0

    def _note(self, seat: str, line: str) -> None:
        """Add a line for a seat."""
        lines = self._memory[seat].lines
        if len(lines) < _MAX_LINES:
            lines.append(line)

    def _current(self, entry: Entry) -> Entry:
        return self.ledger.find(entry.seat) or entry

    def _silence_s(self, entry: Entry) -> float:
        return time.monotonic() - self._memory[entry.seat].contact_s

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that blocks, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(function, *arguments))
