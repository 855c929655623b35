"""The faults that an agent injects into its own program.

The agent sends signals to the program's process group. This works on every backend, needs no
privileges and leaves nothing behind: when the agent ends, its program ends too.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from lab.base.text import short
from lab.protocol.experiments.faults import DONE, OVER, Fault, Kind, concerns, due, parse
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.clock import unix_time
from lab.protocol.volume.control import injected_faults, read_fault
from lab.protocol.volume.files import write_atomically
from lab.task.agent.starts import UNDER_FAULT

_PERIOD_S: Final = 0.1
"""Seconds of one period. A slowed program runs for a share of it and is stopped for the rest."""

_SENT: Final = {Kind.KILL: signal.SIGKILL, Kind.STOP: signal.SIGTERM}


class Process(Protocol):
    """A started program: `process.ChildProcess` or `fork_client.ForkedProgram`."""

    def ended(self) -> bool:
        """Whether it has ended."""

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""


class Throttle:
    """Pauses or slows a program for a time, in its own thread; then the program continues.

    `release` must be called before the exit code is collected: after that the process id may belong
    to another process. No signal is sent once `release` has returned.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self._changed = threading.Condition()
        self._holds: list[tuple[float, float]] = []  # (end time, share of the time that it runs)
        self._began = 0.0
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    def hold(self, seconds: float, share: float = 0.0) -> None:
        """Run it for only this share of the time from now on. The smallest active share applies."""
        with self._changed:
            now = time.monotonic()
            self._holds.append((now + seconds, share))
            if self._thread is None:
                self._began = now
                self._thread = threading.Thread(target=self._work, name="throttle", daemon=True)
                self._thread.start()
            self._changed.notify()

    def release(self) -> None:
        """Continue the program and end all holds."""
        with self._changed:
            self._holds.clear()
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                self._holds = [(until, share) for until, share in self._holds if until > now]
                if not self._holds or self.process.ended():
                    break
                self._changed.wait(max(self._next_phase(now), 0.001))
            self._set_running(run=True)
            self._thread = None

    def _next_phase(self, now: float) -> float:
        """Stop or continue the program for this phase; return the seconds until the next one."""
        share = min(share for _, share in self._holds)
        runs_s = share * _PERIOD_S
        phase_s = (now - self._began) % _PERIOD_S
        self._set_running(run=phase_s < runs_s)
        until = min(until for until, _ in self._holds) - now
        if share == 0.0:
            return until
        return min(until, (runs_s if phase_s < runs_s else _PERIOD_S) - phase_s)

    def _set_running(self, *, run: bool) -> None:
        if run is self._is_stopped:
            self._is_stopped = not run
            self.process.signal(signal.SIGCONT if run else signal.SIGSTOP)


class FaultInjector:
    """The faults of one run for one task. Its agent checks them ten times a second.

    The agent injects the faults of the request that concern its program. Faults that are injected
    during the run are files in the run's `faults/`. A network fault there was injected by the
    client, and the agent only records it. Injected faults are noted in `faults/<task>/`, so a
    restarted agent does not inject them twice.
    """

    def __init__(self, request: Request, task: str, node: str, volume: Volume) -> None:
        """Create an injector.

        Args:
            request: The run.
            task: This agent's task.
            node: Its node.
            volume: The run volume.
        """
        self._task = task
        self._node = node
        self._folder = volume.faults(request.run_id)
        # By names that stay the same after a restart of the agent.
        self._pending: dict[str, Fault] = {}
        self._read_numbers: set[int] = set()
        self._active: list[tuple[float, Fault]] = []  # (end time, fault)
        self._lines: list[str] = []
        self._throttle: Throttle | None = None
        self._ended: tuple[Process, Fault] | None = None  # a program, and the fault that ends it
        for position, text in enumerate(request.spec.faults):
            with self._skip_invalid():
                fault = parse(text)
                # The client injects network faults and then adds a file to `faults/`.
                if not fault.kind.on_network:
                    self._add(f"request-{position}", fault)

    def step(
        self, program: Process | None, elapsed_s: float, global_step: int | None, *, trains: bool
    ) -> list[str]:
        """Inject the faults that are due.

        Args:
            program: The task's program; None while it has none.
            elapsed_s: Seconds since the run was submitted.
            global_step: The run's highest global step, or None before the first one.
            trains: Whether the program has begun to make steps.

        Returns:
            A line for the records for each fault that began or ended: `fault: kill worker-1`.
        """
        self._read_new()
        for key, fault in list(self._pending.items()):
            # One on the network is in effect when its file is there.
            is_due = fault.kind.on_network or due(fault, elapsed_s, global_step, trains=trains)
            if is_due and self._inject(key, fault, program):
                del self._pending[key]
        self._expire()
        lines, self._lines = self._lines, []
        return lines

    @property
    def current_fault(self) -> str:
        """A text with the fault that is active on this task; "" if there is none."""
        return f"{UNDER_FAULT}{self._active[-1][1].text}" if self._active else ""

    def ending_fault(self, program: Process) -> str:
        """The fault that was injected to end this program, as the user wrote it; "" if none was."""
        return self._ended[1].text if self._ended and self._ended[0] is program else ""

    def release(self) -> None:
        """Continue the program if a fault has stopped or slowed it.

        Call it before a signal that ends the program, because a stopped program does not handle it,
        and before the exit code is collected. Later faults act again.
        """
        if self._throttle is not None:
            self._throttle.release()
            self._throttle = None
            self._active = [
                (until, fault) for until, fault in self._active if fault.kind.on_network
            ]

    def _read_new(self) -> None:
        """Read the fault files since the last check."""
        for number, path in injected_faults(self._folder).items():
            if number not in self._read_numbers:
                self._read_numbers.add(number)
                with self._skip_invalid():
                    self._add(f"{number}", read_fault(path))

    @contextlib.contextmanager
    def _skip_invalid(self) -> Iterator[None]:
        """Record an invalid fault as skipped."""
        try:
            yield
        except ValueError as error:
            self._lines.append(short(f"fault skipped: {error}"))

    def _add(self, key: str, fault: Fault) -> None:
        """Add a fault to the pending ones, if it concerns this task and was not injected before."""
        if concerns(fault, self._task, self._node) and not self._done_path(key).exists():
            self._pending[key] = fault

    def _inject(self, key: str, fault: Fault, program: Process | None) -> bool:
        """Inject one fault; return False if there is no program."""
        if not fault.kind.on_network and (program is None or program.ended()):
            return False
        # Written first, so that the fault is injected once even if it ends this agent.
        done = {"fault": fault.text, "time_unix": round(unix_time(), 3)}
        with contextlib.suppress(OSError):  # a full disk does not prevent a fault
            write_atomically(self._done_path(key), json.dumps(done), durable=False)
        if program is not None and fault.kind in _SENT:
            self._ended = program, fault
            program.signal(_SENT[fault.kind])
        elif program is not None and not fault.kind.on_network:
            self._throttle_of(program).hold(fault.seconds, fault.share)
        if fault.seconds:
            self._active.append((time.monotonic() + fault.seconds, fault))
        self._lines.append(f"{DONE}{fault.text}")
        return True

    def _throttle_of(self, program: Process) -> Throttle:
        if self._throttle is None or self._throttle.process is not program:
            self.release()
            self._throttle = Throttle(program)
        return self._throttle

    def _expire(self) -> None:
        now = time.monotonic()
        self._lines += [f"{OVER}{fault.text}" for until, fault in self._active if until <= now]
        self._active = [(until, fault) for until, fault in self._active if until > now]

    def _done_path(self, key: str) -> Path:
        return self._folder / self._task / f"{key}.json"
