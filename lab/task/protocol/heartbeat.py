"""That an agent is there, and whether the others still are.

Two signs tell. An agent holds a lock as long as it lives, which the kernel takes back at its death,
however it dies: who can take that lock knows at once. And its heart beats: an agent that lives and
does nothing any more (or one on another machine, whose locks may not be seen) is missed by that.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.task.protocol import LOST_AFTER_S, TaskStatus, Volume
from lab.task.protocol.files import write_atomically
from lab.task.protocol.statuses import read_status, write_lost

_NO_WAIT: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A program may have put a pipe or a link where an agent has its lock."""

BEAT_S = 1.0
DEAD_AFTER_S = 1.5
"""An agent whose lock is free is dead when its heart has stood still for this long, in seconds."""

COME_WITHIN_S = 120.0
"""An agent that has not been there yet is waited for this long, in seconds."""


class Heartbeat:
    """An agent's own file, whose modification time is its heartbeat."""

    def __init__(self, volume: Volume, task: str, **about: str) -> None:
        """Prepare it.

        Args:
            volume: The run volume.
            task: The agent's task.
            **about: What else the file tells of the agent.
        """
        self._about = {"task": task, **about}
        self._path = volume.agent(task)
        self._lock_path = volume.life(task)
        self._lock: int | None = None
        self._started = time.time()
        self._beaten = 0.0

    def announce(self) -> None:
        """Say where this agent lives.

        Raises:
            OSError: The volume cannot be written.
        """
        printed = {**self._about, "pid": os.getpid(), "started_unix": self._started}
        # Only this directory: a volume that was removed must not come back by itself.
        self._path.parent.mkdir(exist_ok=True)
        self._lock_life()
        write_atomically(self._path, json.dumps(printed))

    def _lock_life(self) -> None:
        """Hold the lock from now on; programs do not inherit it."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | _NO_WAIT, 0o644)
        try:
            # Who asks whether it is free holds it for a moment.
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError:
            # A file system without locks: the heart alone tells.
            self._lock_path.unlink(missing_ok=True)

    def beat(self) -> None:
        """Once a second, whenever it is called."""
        now = time.monotonic()
        if now - self._beaten < BEAT_S:
            return
        self._beaten = now
        try:
            os.utime(self._path)
        except FileNotFoundError:
            self.announce()
        except OSError as error:
            # On a volume that refuses writes, no agent's heartbeat moves.
            if error.errno not in {errno.EROFS, errno.ENOSPC, errno.EDQUOT}:
                raise

    def remove(self) -> None:
        """Take the file away, so that nobody waits for this agent's heart."""
        self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Beat:
    stamp: int | None = None
    seen: bool = False
    silent_s: float = 0.0
    dead: bool = False


class PeerMonitor:
    """The lives of other agents.

    Times of day are not compared, because clocks are set: a heart stands still when it has not
    moved while this process was watching. Each look adds at most one second, so that a process
    that was itself stopped for a minute does not take the others for dead.
    """

    def __init__(self, volume: Volume, tasks: Iterable[str], *, patient: bool = False) -> None:
        """Begin to watch.

        Args:
            volume: Where the agents meet.
            tasks: Whose agents.
            patient: Whether one that has died may come back, and so counts as silent only.
        """
        self._paths: dict[str, Path] = {task: volume.agent(task) for task in tasks}
        self._locks: dict[str, Path] = {task: volume.life(task) for task in self._paths}
        self._patient = patient
        self._peers = {task: _Beat() for task in self._paths}
        self._looked = time.monotonic()
        self._tried = 0.0

    def check(self) -> None:
        """Look at every heart, and, at most once in `BEAT_S`, at every lock."""
        now = time.monotonic()
        passed = min(now - self._looked, BEAT_S)
        self._looked = now
        if now - self._tried >= BEAT_S:
            self._tried = now
            for task, lock in self._locks.items():
                self._peers[task].dead = _is_free(lock)
        for task, path in self._paths.items():
            beat = self._peers[task]
            try:
                stamp = path.stat().st_mtime_ns
            except FileNotFoundError:
                beat.silent_s += passed
                continue
            if stamp == beat.stamp:
                beat.silent_s += passed
                continue
            fresh = abs(time.time() - stamp / 1e9) < LOST_AFTER_S
            beat.seen = beat.seen or fresh or beat.stamp is not None
            beat.stamp = stamp
            beat.silent_s = 0.0

    def lost_reason(self, task: str) -> str | None:
        """Why a task's agent is lost, in words; None while it is not."""
        beat = self._peers[task]
        # Where locks are not seen from elsewhere, all of them seem free: the heart has to agree.
        if beat.seen and beat.dead and beat.silent_s > DEAD_AFTER_S and not self._patient:
            return "its agent has died"
        if beat.seen and beat.silent_s >= LOST_AFTER_S:
            return f"its agent has been silent for {LOST_AFTER_S:.0f} s"
        if not beat.seen and beat.silent_s >= COME_WITHIN_S:
            return f"its agent did not come within {COME_WITHIN_S:.0f} s"
        return None

    def declare_lost(self, volume: Volume, run_id: str, states: Mapping[str, TaskStatus]) -> None:
        """Write the state of those who can no longer write it themselves.

        Raises:
            OSError: The volume cannot be written.
        """
        for task in self._paths:
            reason = None if states[task].state.ended else self.lost_reason(task)
            if reason is None:
                continue
            path = volume.status(run_id, task)
            # It may have written its end since these states were read, and have left then.
            status = read_status(path, task)
            if not status.state.ended:
                write_lost(path, status, reason)


def _is_free(lock: Path) -> bool:
    """Whether nobody holds a lock; False where that cannot be told."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | _NO_WAIT)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
