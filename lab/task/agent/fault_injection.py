"""What an agent does to its own program because a fault says so.

The program's processes are stopped and let go on by signals to its group, so that it works on every
backend, needs no rights, and leaves nothing behind: whatever ends the agent ends its program too.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol

from lab.task.protocol import Volume
from lab.task.protocol.control import injected_faults, read_fault
from lab.task.protocol.faults import DONE, OVER, Fault, Kind, concerns, due, parse_resolved
from lab.task.protocol.files import write_atomically
from lab.task.text import short

_PERIOD_S: Final = 0.1
"""A slowed program runs for a share of each such time, and stands still for the rest of it."""

_YOUNG_S: Final = 2.0
"""A folder may change again within the same tick of its clock while it is as young as this."""

_SENT: Final = {Kind.KILL: signal.SIGKILL, Kind.STOP: signal.SIGTERM}


class Process(Protocol):
    """A program, as `lab.task.agent.process.Program` starts it."""

    def ended(self) -> bool:
        """Whether it has ended."""

    def signal(self, number: int) -> None:
        """Send a signal to it and to its process group."""


class Throttle:
    """Holds a program up for a time, from a thread of its own, and always lets it go on again.

    No signal is sent once `release` has returned; whoever takes the program's exit code calls that
    first, since its process id may then be another's.
    """

    def __init__(self, process: Process, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.victim = process
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._holds: list[tuple[float, float]] = []  # until when, for which share it runs
        self._began = 0.0
        self._stands = False
        self._thread: threading.Thread | None = None

    def hold(self, seconds: float, share: float = 0.0) -> None:
        """Let it run for only this share of the time from now on; of several the least counts."""
        with self._changed:
            now = self._monotonic()
            self._holds.append((now + seconds, share))
            if self._thread is None:
                self._began = now
                self._thread = threading.Thread(target=self._work, name="brake", daemon=True)
                self._thread.start()
            self._changed.notify()

    def release(self) -> None:
        """Let it go on, now and for good."""
        with self._changed:
            self._holds.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        with self._changed:
            while True:
                now = self._monotonic()
                self._holds = [hold for hold in self._holds if hold[0] > now]
                if not self._holds or self.victim.ended():
                    break
                self._changed.wait(max(self._turn(now), 0.001))
            self._let(run=True)
            self._thread = None

    def _turn(self, now: float) -> float:
        """Stop the program or let it run, as its share wants; seconds until the next turn."""
        share = min(share for _, share in self._holds)
        runs_s = share * _PERIOD_S
        phase_s = (now - self._began) % _PERIOD_S
        self._let(run=phase_s < runs_s)
        until = min(until for until, _ in self._holds) - now
        if share == 0.0:
            return until
        return min(until, (runs_s if phase_s < runs_s else _PERIOD_S) - phase_s)

    def _let(self, *, run: bool) -> None:
        if run is self._stands:
            self._stands = not run
            self.victim.signal(signal.SIGCONT if run else signal.SIGSTOP)


class FaultInjector:
    """The faults of one run, as one task's agent looks at them ten times a second.

    Those of the request it does itself, as far as they concern its program. Those that are told
    while the run is under way lie in the run's `faults/`; what acts on a network was done by the
    helper when it lies there, and is only put on record. What has been done is noted in
    `faults/<task>/`, so that an agent that is started again does not do it twice.
    """

    def __init__(
        self,
        faults: Iterable[str],
        *,
        task: str,
        node: str,
        volume: Volume,
        run_id: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to look.

        Args:
            faults: Those of the request, with nothing random.
            task: This agent's task.
            node: Its node.
            volume: The run volume.
            run_id: The run.
            monotonic: Seconds that never run back.
        """
        self._task = task
        self._node = node
        self._folder = volume.faults(run_id)
        self._monotonic = monotonic
        self._waiting: dict[str, Fault] = {}  # by names that they keep in every life of the agent
        self._reported: set[int] = set()
        self._stamp: int | None = None  # of the folder, when it was last read
        self._holding: list[tuple[float, Fault]] = []  # until when, and what
        self._printed: list[str] = []
        self._throttle: Throttle | None = None
        for position, text in enumerate(faults):
            with self._skip_invalid():
                fault = parse_resolved(text)
                # What acts on a network is the helper's, who tells of it when it is done.
                if not fault.kind.on_network:
                    self._take(f"request-{position}", fault)

    def step(self, program: Process | None, elapsed_s: float, global_step: int | None) -> list[str]:
        """Do what is due.

        Args:
            program: The task's program; None while it has none.
            elapsed_s: Seconds that the run is under way.
            global_step: How far it is, or None where no step was made.

        Returns:
            A line for the records for each fault that came or is over: `fault: kill worker-1`.
        """
        self._look()
        for key, fault in list(self._waiting.items()):
            if due(fault, elapsed_s, global_step) and self._do(key, fault, program):
                del self._waiting[key]
        self._end()
        printed, self._printed = self._printed, []
        return printed

    @property
    def current_fault(self) -> str:
        """What a task does that is under a fault now, in words; "" while it is under none."""
        return f"is under the fault {self._holding[-1][1].text}" if self._holding else ""

    def release(self) -> None:
        """Let the program go on if it is held up.

        To be called before it is told to end, which one that stands still does not hear, and before
        its exit code is taken. A fault that comes later acts again.
        """
        if self._throttle is not None:
            self._throttle.release()
            self._throttle = None
            self._holding = [held for held in self._holding if held[1].kind.on_network]

    def _look(self) -> None:
        """Read what was told since the last look, which costs one `stat` where nothing was."""
        try:
            stamp = self._folder.stat().st_mtime_ns
        except OSError:
            return
        if stamp == self._stamp:
            return
        # What comes within the same tick of the clock would leave the same stamp.
        is_young = abs(time.time() - stamp / 1e9) < _YOUNG_S
        self._stamp = None if is_young else stamp
        for number, path in injected_faults(self._folder).items():
            if number not in self._reported:
                self._reported.add(number)
                with self._skip_invalid():
                    self._take(f"{number}", read_fault(path))

    @contextlib.contextmanager
    def _skip_invalid(self) -> Iterator[None]:
        """Put on record that what is no fault is left out."""
        try:
            yield
        except ValueError as error:
            self._printed.append(short(f"fault left out: {error}"))

    def _take(self, key: str, fault: Fault) -> None:
        """Put a fault among those that wait, if it is this task's part and was not done before."""
        if concerns(fault, self._task, self._node) and not self._note(key).exists():
            self._waiting[key] = fault

    def _do(self, key: str, fault: Fault, program: Process | None) -> bool:
        """Do one fault; False where there is no program to do it to."""
        if not fault.kind.on_network and (program is None or program.ended()):
            return False
        # Noted first: whatever it does to this agent, it does it once.
        done = {"fault": fault.text, "time_unix": round(time.time(), 3)}
        with contextlib.suppress(OSError):  # a fault comes also where the disk is full
            write_atomically(self._note(key), json.dumps(done), durable=False)
        if program is not None and fault.kind in _SENT:
            program.signal(_SENT[fault.kind])
        elif program is not None and not fault.kind.on_network:
            self._throttle_of(program).hold(fault.seconds, fault.share)
        if fault.seconds:
            self._holding.append((self._monotonic() + fault.seconds, fault))
        self._printed.append(f"{DONE}{fault.text}")
        return True

    def _throttle_of(self, program: Process) -> Throttle:
        if self._throttle is None or self._throttle.victim is not program:
            self.release()
            self._throttle = Throttle(program)
        return self._throttle

    def _end(self) -> None:
        now = self._monotonic()
        self._printed += [f"{OVER}{each.text}" for until, each in self._holding if until <= now]
        self._holding = [(until, each) for until, each in self._holding if until > now]

    def _note(self, key: str) -> Path:
        return self._folder / self._task / f"{key}.json"
