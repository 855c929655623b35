"""Gives the seats their turns: boots, ends and removes environments as the ledger says.

All changes of the ledger happen in the event loop. Blocking calls run in threads. Every step can be
repeated, so the next service continues from the ledger if this one is killed.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from lab.base.errors import InputError, LabError
from lab.base.formatting import about
from lab.base.log import LOG
from lab.teach.classroom.protocol import Gone, Order, State, Status
from lab.teach.classroom.queue.host import Host
from lab.teach.classroom.queue.ledger import Entry, Ledger, admitted

_THREADS: Final = 1024
"""A seat has at most one step and one order, so none waits for those of another seat."""

_CLOSED_S: Final = 60.0
"""Seconds for which a seat cannot order after the teacher has ended its environment."""

T = TypeVar("T")
_Step = Callable[[Entry], Coroutine[Any, Any, None]]


@dataclass
class _Seat:
    """What the service remembers of a seat and its environment, besides the entry.

    Attributes:
        contact_s: When the seat last asked for its environment.
        checked_s: When the containers were last checked.
        closed_s: Until when the seat cannot order.
        not_before_s: When the next step may begin.
        step: The step that is under way.
    """

    contact_s: float = field(default_factory=time.monotonic)
    checked_s: float = field(default_factory=time.monotonic)
    closed_s: float = 0.0
    not_before_s: float = 0.0
    step: asyncio.Task[None] | None = None

    def silence_s(self) -> float:
        """Return the seconds since the seat last asked for its environment."""
        return time.monotonic() - self.contact_s


@dataclass(eq=False)
class Turns:
    """The environments of the seats of a class, and their turns.

    Attributes:
        ledger: The ledger of the class.
        host: Boots and ends the containers.
        clock: Returns seconds since the epoch.
        no_follow_s: Without a request, a waiting environment loses its place after this time.
        grace_s: At the end of its turn, a seat has this time to cancel and collect its run.
        follows_s: A seat that has not asked for this time does not follow its run.
        tick_s: The time between two looks at the ledger.
        check_s: The time between two checks of an environment.
        retry_s: The time until a removal of containers that failed is repeated.
    """

    ledger: Ledger
    host: Host
    clock: Callable[[], float] = time.time
    no_follow_s: float = 60.0
    grace_s: float = 20.0
    follows_s: float = 10.0
    tick_s: float = 1.0
    check_s: float = 15.0
    retry_s: float = 30.0

    def __post_init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "queue")
        self._seats: dict[str, _Seat] = defaultdict(_Seat)

    # What a seat does.

    async def order(self, order: Order, seat: str) -> Entry:
        """Give a seat a place in the queue; an order that is repeated changes nothing.

        Raises:
            InputError: The order is invalid, or the seat has a place already.
        """
        known = self.ledger.entries.get(seat)
        if known is None or known.order.id != order.id:
            name = self.ledger.plan.name
            entry = await self._in_thread(admitted, order, name, seat, self.clock())
            if time.monotonic() < self._seats[seat].closed_s:  # it may have been closed meanwhile
                raise InputError("the teacher is ending the runs of this seat", "try again later")
            self.ledger.add(entry)
            self._seats[seat] = _Seat()
            self.advance()
        return self.find(seat)

    def find(self, seat: str) -> Entry:
        """Return the environment of a seat, and note that the seat asked for it.

        Raises:
            Gone: The seat has none.
        """
        entry = self.ledger.entries.get(seat)
        if entry is None:
            raise Gone("the queue has no environment of this seat", "see `lab ps`")
        self._seats[seat].contact_s = time.monotonic()
        return entry

    def give_back(self, seat: str, identity: str) -> bool:
        """End an environment for its seat, at once; return whether it still has containers.

        Raises:
            Gone: The seat has no such environment, but perhaps a later one.
        """
        if self.find(seat).order.id != identity:
            raise Gone("the queue has another environment of this seat", "see `lab ps`")
        return self._leave(seat, "its seat removed it", released=True)

    def end(self, seat: str) -> bool:
        """End the environment of a seat for the teacher; return whether it still has containers.

        The seat may still collect the run. For a time, it cannot order again.
        """
        self._seats[seat].closed_s = time.monotonic() + _CLOSED_S
        return self._leave(seat, "the teacher ended it", released=False)

    def _leave(self, seat: str, reason: str, *, released: bool) -> bool:
        entry = self.ledger.entries.get(seat)
        if entry is None:
            return False
        if entry.state is State.WAITING or (released and entry.state is State.ENDED):
            self.ledger.remove(seat)
        elif entry.state in {State.GRANTED, State.UP}:
            self._end(seat, reason, released=released)
        elif released:
            self.ledger.change(seat, released=True)
        self.advance()
        left = self.ledger.entries.get(seat)
        return left is not None and left.is_live

    def status(self, entry: Entry) -> Status:
        """Return the status of an environment for its seat."""
        return Status(
            id=entry.order.id,
            state=entry.state,
            position=self.ledger.positions().get(entry.seat, 0),
            reason=entry.reason,
            slice_s=self.ledger.plan.slice_s,
            provenance=entry.provenance,
        )

    # The turns.

    async def run(self) -> None:
        """Give turns until this is cancelled."""
        while True:
            self.advance()
            await asyncio.sleep(self.tick_s)

    async def finish_steps(self, within_s: float) -> None:
        """Wait until no step is under way, with a time limit in seconds."""
        if steps := [seat.step for seat in self._seats.values() if seat.step]:
            await asyncio.wait(steps, timeout=within_s)

    def advance(self) -> None:
        """Give every turn that is possible now, end those that are over, and start their steps."""
        now = self.clock()
        try:
            for seat, entry in list(self.ledger.entries.items()):
                silence_s = self._seats[seat].silence_s()
                if entry.state is State.WAITING and silence_s > self.no_follow_s:
                    LOG.info(f"{seat}: {entry.name} left the queue")
                    self.ledger.remove(seat)
            self.ledger.grant(now)
            for entry in self.ledger.overdue(now):
                turn = about(self.ledger.plan.slice_s)
                self._end(entry.seat, f"its turn of {turn} has ended")
        except OSError as error:
            LOG.error(f"the ledger cannot be written: {error}")
            return
        for entry in self.ledger.entries.values():
            self._start_step(entry)

    def _end(self, seat: str, reason: str, *, released: bool = False) -> None:
        self.ledger.enter(seat, State.ENDING, self.clock(), reason=reason, released=released)

    def _start_step(self, entry: Entry) -> None:
        seat, now_s = self._seats[entry.seat], time.monotonic()
        if seat.step is not None or now_s < seat.not_before_s:
            return
        step: _Step
        if entry.state is State.GRANTED:
            step = self._boot
        elif entry.state is State.ENDING and self._may_finish(entry, seat):
            step = self._finish
        elif entry.state is State.UP and now_s - seat.checked_s > self.check_s:
            step = self._check
        else:
            return
        seat.step = asyncio.create_task(self._take(step, entry))

    async def _take(self, step: _Step, entry: Entry) -> None:
        try:
            await step(entry)
        except Exception as error:  # noqa: BLE001  (one environment must not stop the others)
            self._fail(entry, error)
        finally:
            self._seats[entry.seat].step = None
        self.advance()

    def _fail(self, entry: Entry, error: Exception) -> None:
        """End a failed boot, which gives its GPUs back; repeat other steps later."""
        seat, message = self._seats[entry.seat], str(error)
        if entry.state is State.GRANTED:
            # Without the hint: it is for the teacher, who also has the log.
            reason = error.what if isinstance(error, LabError) else "the boot failed"
            self._end(entry.seat, reason, released=True)
        elif entry.state is State.ENDING:  # a failed check must not delay this
            message = f"{error}; trying again in {about(self.retry_s)}"
            seat.not_before_s = time.monotonic() + self.retry_s
        expected = isinstance(error, LabError | OSError)
        LOG.warning(f"{entry.project}: {message}", exc_info=None if expected else error)

    # The steps of an environment. It stays in the ledger until its step has ended.

    async def _boot(self, entry: Entry) -> None:
        ran = await self._in_thread(self.host.boot, entry)
        if self._state(entry) is State.GRANTED:
            self.ledger.enter(entry.seat, State.UP, self.clock(), provenance=ran)

    def _may_finish(self, entry: Entry, seat: _Seat) -> bool:
        """Whether its seat has given it back, does not follow its run, or had enough time."""
        return (
            entry.released
            or seat.silence_s() > self.follows_s
            or self.clock() - entry.since_unix > self.grace_s
        )

    async def _finish(self, entry: Entry) -> None:
        """Remove the containers. The agents let the programs save first."""
        await self._in_thread(self.host.end, entry.project)
        self.ledger.enter(entry.seat, State.ENDED, self.clock(), gpus=(), network="")

    async def _check(self, entry: Entry) -> None:
        """End an environment whose containers have ended."""
        self._seats[entry.seat].checked_s = time.monotonic()
        runs = await self._in_thread(self.host.runs, entry.project)
        if not runs and self._state(entry) is State.UP:
            self._end(entry.seat, "its containers have ended; the host may have been restarted")

    def _state(self, entry: Entry) -> State:
        """Return the current state of an environment."""
        return self.ledger.entries[entry.seat].state

    async def _in_thread(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function that blocks, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, function, *arguments)
