"""An agent's heartbeat, and a monitor of the other agents.

Two signs show that an agent runs. It holds a lock, which the kernel releases when the agent's
process ends for any reason: a monitor that can take the lock knows this at once. And the agent
updates its heartbeat file every second: this detects an agent that hangs, or one on another host,
whose locks may be invisible.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.protocol.volume.clock import Stopwatch
from lab.protocol.volume.files import write_atomically
from lab.protocol.volume.layout import LOST_AFTER_S, Volume
from lab.protocol.volume.states import State, TaskStatus
from lab.protocol.volume.status import read_status, write_lost

_NO_WAIT: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""A program may have replaced an agent's lock by a pipe or a link."""

BEAT_S = 1.0
ENDED_AFTER_S = 1.5
"""An agent with a free lock has ended if it sends no heartbeat for this time, in seconds."""

START_WITHIN_S = 120.0
"""The time limit for an agent's first heartbeat, in seconds."""


class Heartbeat:
    """An agent's file on the run volume; its modification time is the heartbeat."""

    def __init__(self, volume: Volume, task: str, *, locks: bool = True, **about: str) -> None:
        """Prepare the file; `announce` writes it.

        Args:
            volume: The run volume.
            task: The agent's task.
            locks: Whether to take a lock. Not between hosts: a file system may keep a lock on one
                host, and show another host an old heartbeat for some seconds.
            **about: Further entries of the file.
        """
        self._locks = locks
        self._about = {"task": task, **about}
        self._path = volume.agent(task)
        self._lock_path = volume.agent_lock(task)
        self._lock: int | None = None
        self._beat_at = 0.0

    def announce(self) -> None:
        """Write the file and take the lock.

        Raises:
            OSError: The volume is not writable.
        """
        # Without `parents`: the agent must not create a removed volume again.
        self._path.parent.mkdir(exist_ok=True)
        if self._locks:
            self._take_lock()
        write_atomically(self._path, json.dumps(self._about))

    def _take_lock(self) -> None:
        """Take the lock; programs do not inherit it."""
        if self._lock is not None:
            os.close(self._lock)
        self._lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | _NO_WAIT, 0o644)
        try:
            # Monitors hold the lock briefly when they test it.
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        except OSError:
            # The file system has no locks: monitors use only the heartbeat.
            self._lock_path.unlink(missing_ok=True)

    def beat(self) -> None:
        """Update the heartbeat, at most once in `BEAT_S`."""
        now = time.monotonic()
        if now - self._beat_at < BEAT_S:
            return
        try:
            os.utime(self._path)
        except FileNotFoundError:
            self.announce()
        except OSError as error:
            # A full or read-only volume stops the heartbeats of all agents alike.
            if error.errno not in {errno.EROFS, errno.ENOSPC, errno.EDQUOT}:
                raise
        self._beat_at = now  # after an error, the next call tries again

    def remove(self) -> None:
        """Remove the file, so that monitors do not wait for this agent."""
        self._path.unlink(missing_ok=True)


@dataclass(slots=True)
class _Peer:
    """What is known of another agent.

    Attributes:
        heartbeat: Its heartbeat file.
        lock: The file that it locks.
        stamp: The time of its heartbeat, and for how long it has not changed.
        pending: Whether it has not begun the run when this process began to watch.
        seen: Whether it has run.
        lock_free: Whether its lock is free.
    """

    heartbeat: Path
    lock: Path
    stamp: Stopwatch = field(default_factory=Stopwatch)
    pending: bool = False
    seen: bool = False
    lock_free: bool = False


class PeerMonitor:
    """Monitors the heartbeats and the locks of other agents.

    It does not compare times of day, because clocks may be changed. It measures the time in which a
    heartbeat did not change while this process watched.
    """

    def __init__(self, volume: Volume, tasks: Iterable[str], *, patient: bool = False) -> None:
        """Begin to watch.

        Args:
            volume: The run volume.
            tasks: The tasks whose agents are watched.
            patient: Whether an agent that has ended may start again. Then a free lock does not
                count, only the missing heartbeat.
        """
        self._patient = patient
        self._peers = {task: _Peer(volume.agent(task), volume.agent_lock(task)) for task in tasks}
        self._locks_checked_at = 0.0

    def check(self) -> None:
        """Check every heartbeat, and, at most once in `BEAT_S`, every lock."""
        now = time.monotonic()
        if now - self._locks_checked_at >= BEAT_S:
            self._locks_checked_at = now
            for peer in self._peers.values():
                peer.lock_free = _is_free(peer.lock)
        for peer in self._peers.values():
            last = peer.stamp.value
            try:
                stamp = peer.heartbeat.stat().st_mtime_ns
            except FileNotFoundError:
                peer.stamp.look(last)
                continue
            except OSError:
                continue  # a fault of this host or of the volume is not one of the agent
            peer.stamp.look(stamp)
            if stamp != last and not peer.seen:
                # Without locks, the agents may be on hosts with other clocks: only a change counts.
                fresh = peer.lock.exists() and abs(time.time() - stamp / 1e9) < LOST_AFTER_S
                peer.seen = fresh or last is not None

    def lost_reason(self, task: str) -> str | None:
        """Return why a task's agent is lost; None if it is not lost."""
        peer = self._peers[task]
        silent_s = peer.stamp.seconds
        # If locks are invisible to this host, all seem free: so the heartbeat must be missing too.
        if peer.seen and peer.lock_free and silent_s > ENDED_AFTER_S and not self._patient:
            return "its agent process has ended"
        if peer.seen and silent_s >= LOST_AFTER_S:
            return f"its agent has sent no heartbeat for {LOST_AFTER_S:.0f} s"
        if not peer.seen and silent_s >= START_WITHIN_S:
            return f"its agent did not start within {START_WITHIN_S:.0f} s"
        return None

    def declare_lost(self, volume: Volume, run_id: str, states: Mapping[str, TaskStatus]) -> None:
        """Write the state `lost` for each task whose agent is lost.

        Raises:
            OSError: The volume is not writable.
        """
        for task, peer in self._peers.items():
            # An agent that begins a run has started, even if it ends before its next heartbeat.
            peer.seen |= peer.pending and states[task].state is not State.PENDING
            peer.pending |= states[task].state is State.PENDING
            reason = None if states[task].state.ended else self.lost_reason(task)
            if reason is None:
                continue
            path = volume.status(run_id, task)
            # The agent may have written the task's end and exited since these states were read.
            status = read_status(path, task)
            if not status.state.ended:
                write_lost(path, status, reason)


def _is_free(lock: Path) -> bool:
    """Whether no process holds a lock; False if that is unknown."""
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
