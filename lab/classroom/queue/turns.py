"""Gives the seats their turns: boots, ends and removes environments as the ledger says.

All changes of the ledger happen in the event loop. What blocks runs in threads. Every step can be
repeated, so a service that was killed continues where the ledger is.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from lab.backends.base import Backend
from lab.backends.classroom.protocol import NO_FOLLOW_S, Gone, Order, State, Status
from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.state import Busy
from lab.classroom.queue.admission import admitted
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
from lab.errors import LabError
from lab.formatting import about
from lab.log import LOG, passed_on
from lab.placement.plan import Plan
from lab.run.discovery import statuses_of, under_way
from lab.volume.continuation import next_step
from lab.volume.files import write_atomically

_RETRY_S: Final = 5.0
_STOP_S: Final = 15.0
_KILL_S: Final = 5.0
_COLLECT_S: Final = 15.0
_POLL_S: Final = 0.5
_MAX_LINES: Final = 500
_THREADS: Final = 32

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of the queue, in seconds.

    Attributes:
        idle_s: Without a run and without a request, an environment ends after this time.
        keep_s: After its seat collected it, the run volume of an ended environment is kept so long.
        no_follow_s: Without a request, a waiting environment loses its place after this time.
        tick_s: The time between two looks at the ledger.
        check_s: The time between two checks of an environment.
        poll_s: The time between two looks at a run that ends.
    """

    idle_s: float = 120.0
    keep_s: float = 3600.0
    no_follow_s: float = NO_FOLLOW_S
    tick_s: float = 1.0
    check_s: float = 15.0
    poll_s: float = _POLL_S


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
        *,
        backend: Callable[[str], Backend],
        plan: Callable[[Entry, str], Plan],
        root: Path,
        clock: Callable[[], float] = time.time,
        delays: Delays = Delays(),
    ) -> None:
        """Make the turns of one class.

        Args:
            name: The class.
            ledger: Its ledger.
            capacity: What the queue has to give.
            folder: The directory for the configs.
            backend: Returns the backend for a network's range; "": for environments that exist.
            plan: Places an entry with the text of its config.
            root: The project's directory on this host.
            clock: Returns seconds since the epoch.
            delays: The delays.
        """
        self.ledger = ledger
        self.delays = delays
        self.revision = int(clock() * 1000)  # differs from that of an earlier service
        self._name, self._capacity, self._folder = name, capacity, folder
        self._backend, self._plan, self._root, self._clock = backend, plan, root, clock
        self._pool = ThreadPoolExecutor(_THREADS, "queue")
        self._changed = asyncio.Event()
        self._contacts: dict[str, float] = {}
        self._streams: Counter[str] = Counter()
        self._removing: set[str] = set()
        self._lines: dict[str, list[str]] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        self._checked: dict[str, float] = {}
        self._began = time.monotonic()

    # What a seat does.

    def request(self, order: Order, seat: str) -> Entry:
        """Give a seat a place in the queue.

        Raises:
            InputError: The order is invalid, or the seat has a place already.
        """
        used = {each.project for each in self.ledger.entries}
        entry = admitted(order, self._name, seat, used, self._clock())
        entries = added(self.ledger.entries, entry, self._capacity)
        write_atomically(self._config(entry.id), order.config)
        self._write(entries)
        self.touch(entry.id)
        self.advance()
        return self._current(entry)

    def of_seat(self, seat: str) -> list[Entry]:
        """Return the environments of a seat, the oldest first."""
        return [each for each in self.ledger.entries if each.seat == seat and not each.removes]

    def find(self, seat: str, id_: str) -> Entry:
        """Return an environment of a seat, and note that the seat asked for it.

        Raises:
            Gone: The seat has no such environment.
        """
        entry = self.ledger.find(id_)
        if entry is None or entry.seat != seat:
            raise Gone(f"the queue has no environment {id_} of this seat", "see `lab ls`")
        self.touch(id_)
        return entry

    def touch(self, id_: str) -> None:
        """Note that the seat of an environment is there."""
        self._contacts[id_] = time.monotonic()

    @contextmanager
    def streaming(self, id_: str) -> Iterator[None]:
        """Note that a seat reads a stream of an environment, or makes a call."""
        self._streams[id_] += 1
        try:
            yield
        finally:
            self._streams[id_] -= 1
            self.touch(id_)

    def streams(self, id_: str) -> int:
        """Return the number of streams of an environment that are being read."""
        return self._streams[id_]

    def remove(self, entry: Entry, *, keep: bool, reason: str = "its seat removed it") -> None:
        """End an environment for its seat or the teacher.

        Args:
            entry: The environment.
            keep: Whether its run volume is kept.
            reason: Why.
        """
        if entry.state is State.WAITING:
            self._forget(entry.id)
        elif entry.state in {State.GRANTED, State.UP}:
            self._end(entry, reason, removes=not keep)
        elif not keep:
            self._write(changed(self.ledger.entries, entry.id, removes=True))
        self.advance()

    def status(self, entry: Entry) -> Status:
        """Return the status of an environment for its seat."""
        wait = waits(self.ledger.entries, self._capacity, self._clock()).get(entry.id)
        return Status(
            id=entry.id,
            name=entry.name,
            state=entry.state,
            folder=entry.folder,
            cluster_sha256=entry.cluster_sha256,
            tensorflow=entry.tensorflow,
            position=wait.position if wait else 0,
            wait_s=wait.seconds if wait else 0.0,
            reason=entry.reason,
            failed=entry.failed,
            lines=tuple(self._lines.get(entry.id, ())),
            revision=self.revision,
        )

    async def changes(self, revision: int, within_s: float) -> None:
        """Wait until the revision is another one, with a time limit in seconds."""
        if self.revision == revision:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), within_s)

    async def environment(self, entry: Entry) -> Environment | None:
        """Return the containers or the run volume of an environment; None before its turn.

        While the containers are removed, wait: a call would break off.

        Raises:
            Gone: Nothing is left of it.
            LabError: The engine does not answer.
        """
        if entry.state in {State.WAITING, State.GRANTED}:
            return None
        while entry.id in self._removing:
            await self._changed.wait()
        found = await self.call(self._backend("").find_any, entry.project)
        if found is None:
            raise Gone(f"nothing is left of environment {entry.name!r}", "see `lab ls`")
        return found

    async def check_collected(self, entry: Entry) -> None:
        """Note whether the seat has collected all runs of an environment that has ended."""
        if self._current(entry).state is State.ENDED:
            environment = await self.call(self._backend("").find_any, entry.project)
            left = environment is not None and await self.call(_has_uncollected, environment)
            self._write(changed(self.ledger.entries, entry.id, collected=not left))

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """Call a function that blocks, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(function, *args))

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
        entries = self.ledger.entries
        for entry in entries:
            if entry.state is State.WAITING and self._silence_s(entry.id) > self.delays.no_follow_s:
                LOG.info(f"{entry.seat}: {entry.name} left the queue")
                entries = removed(entries, entry.id)
        now = self._clock()
        entries = granted(entries, self._capacity, now)
        reason = f"its turn of {about(self._capacity.slice_s)} has ended"
        for entry in overdue(entries, self._capacity, now):
            entries = changed(entries, entry.id, state=State.ENDING, reason=reason)
        for entry in entries:
            if entry.collected and now - entry.ended_unix > self.delays.keep_s:
                entries = changed(entries, entry.id, removes=True)
        return entries

    def _start_work(self, entry: Entry) -> None:
        if entry.id in self._working or time.monotonic() < self._not_before.get(entry.id, 0.0):
            return
        work: Callable[[Entry], Coroutine[Any, Any, None]]
        if entry.state is State.GRANTED:
            work = self._boot
        elif entry.state is State.ENDING:
            work = self._finish
        elif entry.state is State.ENDED and entry.removes:
            work = self._delete
        elif entry.state is State.UP and self._is_due(entry.id):
            work = self._check
        else:
            return
        self._working[entry.id] = asyncio.create_task(self._work(work, entry))

    async def _work(self, work: Callable[[Entry], Coroutine[Any, Any, None]], entry: Entry) -> None:
        try:
            await work(entry)
        except Exception as error:  # noqa: BLE001  (one environment must not stop the others)
            expected = isinstance(error, LabError | OSError)
            LOG.warning(f"{entry.project}: {error}", exc_info=None if expected else error)
            self._not_before[entry.id] = time.monotonic() + _RETRY_S
        finally:
            del self._working[entry.id]
        self.advance()

    async def _boot(self, entry: Entry) -> None:
        loop, lines = asyncio.get_running_loop(), self._lines.setdefault(entry.id, [])

        def note(line: str) -> None:
            if len(lines) < _MAX_LINES:
                lines.append(line)
                self._bump()

        def report(line: str) -> None:
            loop.call_soon_threadsafe(note, line)

        within = about(self._capacity.slice_s)
        note(f"the turn has begun; if others wait, it ends {within} after the first step")
        try:
            await self.call(self._boot_now, entry, report)
        except Busy:
            raise  # an earlier service still boots it
        except LabError as error:
            self._end(entry, str(error), removes=False, failed=True)
        else:
            if self._current(entry).state is State.GRANTED:
                self._write(changed(self.ledger.entries, entry.id, state=State.UP))
                self.touch(entry.id)

    def _boot_now(self, entry: Entry, report: Callable[[str], None]) -> None:
        plan = self._plan(entry, self._config(entry.id).read_text(encoding="utf-8"))
        # The class holds the GPUs in the host's record. Within the class, the ledger decides.
        with passed_on(report):
            boot(self._backend(entry.network), plan, root=self._root, share=True)

    async def _finish(self, entry: Entry) -> None:
        """End an environment: first its run, then its containers."""
        environment = await self.call(self._backend("").find_any, entry.project)
        if environment is not None:
            await self.call(stop_run, environment, entry.reason, self.delays.poll_s)
            await self._streams_end(entry.id)
            keeps = not entry.failed and not self._current(entry).removes
            self._removing.add(entry.id)
            try:
                await self.call(partial(environment.down, keeps=lambda: keeps))
            finally:
                self._removing.remove(entry.id)
                self._bump()
        entries = changed(
            self.ledger.entries,
            entry.id,
            state=State.ENDED,
            gpus=(),
            network="",
            ended_unix=self._clock(),
        )
        self._write(entries)
        await self.check_collected(entry)

    async def _streams_end(self, id_: str) -> None:
        """Wait until the seat has collected the run, with a time limit."""
        until = time.monotonic() + _COLLECT_S
        while self._streams[id_] and time.monotonic() < until:
            await asyncio.sleep(self.delays.poll_s)

    async def _delete(self, entry: Entry) -> None:
        environment = await self.call(self._backend("").find_any, entry.project)
        if environment is not None:
            await self.call(environment.down)
        self._forget(entry.id)

    async def _check(self, entry: Entry) -> None:
        """Note the first step; end an environment whose containers ended, or that is not used."""
        self._checked[entry.id] = time.monotonic()
        environment = await self.call(self._backend("").find, entry.project)
        reason, idle_s = "", self.delays.idle_s
        if environment is None:
            reason = "its containers have ended; the host may have been restarted"
        elif self._silence_s(entry.id) > idle_s and not await self.call(under_way, environment):
            reason = f"it was idle for {about(idle_s)}"
        current = self._current(entry)
        if reason and current.state is State.UP:
            self._end(current, reason, removes=False)
        if environment is None or current.stepped_unix:
            return
        if await self.call(_has_stepped, environment):
            now = self._clock()
            self._write(changed(self.ledger.entries, entry.id, stepped_unix=now))

    def _is_due(self, id_: str) -> bool:
        return time.monotonic() - self._checked.get(id_, self._began) > self.delays.check_s

    # The ledger.

    def _end(self, entry: Entry, reason: str, *, removes: bool, failed: bool = False) -> None:
        fields = {"state": State.ENDING, "reason": reason, "removes": removes, "failed": failed}
        self._write(changed(self.ledger.entries, entry.id, **fields))

    def _forget(self, id_: str) -> None:
        self._write(removed(self.ledger.entries, id_))
        self._config(id_).unlink(missing_ok=True)

    def _write(self, entries: Entries) -> None:
        if self.ledger.write(entries):
            known = {each.id for each in entries}
            for per_entry in (self._contacts, self._lines, self._not_before, self._checked):
                for id_ in per_entry.keys() - known:
                    del per_entry[id_]
            self._bump()

    def _bump(self) -> None:
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def _current(self, entry: Entry) -> Entry:
        return self.ledger.find(entry.id) or entry

    def _config(self, id_: str) -> Path:
        return self._folder / f"{id_}.yaml"

    def _silence_s(self, id_: str) -> float:
        if self._streams[id_]:
            return 0.0
        return time.monotonic() - self._contacts.get(id_, self._began)


def stop_run(environment: Environment, reason: str, poll_s: float = _POLL_S) -> None:
    """Cancel the run of an environment that is under way, and wait for its end.

    Args:
        environment: The environment.
        reason: Why.
        poll_s: The time between two looks at the run, in seconds.

    Raises:
        LabError: The environment does not answer.
    """
    if not environment.is_up or (run_id := under_way(environment)) is None:
        return
    request = next(each for each in environment.runs() if each.run_id == run_id)
    hint = next_step(request, statuses_of(environment, run_id))
    environment.cancel(run_id, f"{reason}; {hint}")
    if not _has_ended(environment, run_id, _STOP_S, poll_s):
        environment.kill(run_id, reason)
        _has_ended(environment, run_id, _KILL_S, poll_s)


def _has_stepped(environment: Environment) -> bool:
    """Whether the newest run of an environment has made a step."""
    return any(
        each.global_step
        for request in environment.runs()[-1:]
        for each in statuses_of(environment, request.run_id).values()
    )


def _has_uncollected(environment: Environment) -> bool:
    """Whether a run volume has a run that its seat has not collected."""
    return bool({each.run_id for each in environment.runs()} - environment.collected().keys())


def _has_ended(environment: Environment, run_id: str, within_s: float, poll_s: float) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        statuses = statuses_of(environment, run_id)
        if all(each.state.ended for each in statuses.values()):
            return True
        time.sleep(poll_s)
    return False
