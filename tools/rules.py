"""Small simulations of the rules that the lessons' figures show. Times are whole milliseconds.

`docs/animations/async.html` has the rule of `asynchronous` in JavaScript; a test compares both.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean

READ_MS = 40
APPLY_MS = 40


@dataclass(frozen=True, slots=True)
class Speeds:
    """How long the phases of a worker's step take.

    Attributes:
        compute_ms: For each worker: from the end of the read to the finished gradient.
        pause_ms: From the finished gradient to its update.
        spread: Each computation takes up to this many percent less or more.
        read_ms: The read of the parameters.
        apply_ms: The update.
    """

    compute_ms: Sequence[int]
    pause_ms: int = 0
    spread: int = 0
    read_ms: int = READ_MS
    apply_ms: int = APPLY_MS


@dataclass(slots=True)
class Gradient:
    """One step of an asynchronous worker; each phase ends where the next one begins.

    Attributes:
        worker: The worker.
        read: The time at which the worker reads the global step, then the parameters.
        compute: The time at which its computation begins.
        pause: The time at which the gradient is finished.
        apply: The time at which the server counts the update, then applies it.
        seen: The global step that the worker read.
        number: The global step when this update was counted: the updates before it.
    """

    worker: int
    read: int
    compute: int
    pause: int
    apply: int
    seen: int
    number: int = 0

    @property
    def staleness(self) -> int:
        """The updates counted between this step's read and its own count."""
        return self.number - self.seen


def asynchronous(speeds: Speeds, until_ms: int) -> list[Gradient]:
    """Train asynchronously, and return the gradients in the order of their updates.

    Worker i of n begins i/n of its step later than the first. At equal times the worker with the
    smaller number is first.
    """
    random = [worker + 1 for worker in range(len(speeds.compute_ms))]
    steps: dict[int, Gradient] = {}
    done: list[Gradient] = []
    around = speeds.read_ms + speeds.pause_ms + speeds.apply_ms
    events = [
        ((around + compute) * worker // len(speeds.compute_ms), worker)
        for worker, compute in enumerate(speeds.compute_ms)
    ]
    heapq.heapify(events)
    while events[0][0] <= until_ms:
        now, worker = heapq.heappop(events)
        if worker in steps:
            steps[worker].number = len(done)
            done.append(steps.pop(worker))
            heapq.heappush(events, (now + speeds.apply_ms, worker))
            continue
        random[worker] = random[worker] * 16807 % 2147483647
        percent = 10_000 + speeds.spread * (random[worker] % 201 - 100)
        compute = now + speeds.read_ms
        pause = compute + speeds.compute_ms[worker] * percent // 10_000
        apply = pause + speeds.pause_ms
        steps[worker] = Gradient(worker, now, compute, pause, apply, seen=len(done))
        heapq.heappush(events, (apply, worker))
    return done


def mean_staleness(gradients: Sequence[Gradient], worker: int | None = None) -> float:
    """Return the mean over all gradients, or over those of a worker; without one, 0."""
    return mean([each.staleness for each in gradients if worker in {None, each.worker}] or [0])


@dataclass(slots=True)
class Work:
    """One step of a synchronous worker.

    Attributes:
        worker: The worker.
        token: The update after which the worker read the parameters.
        start: The time at which it took this token.
        end: The time at which it sent its gradient.
        accepted: Whether an accumulator took the gradient; otherwise it was dropped.
    """

    worker: int
    token: int
    start: int
    end: int
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """What happened, and what the parameter server held afterwards.

    Attributes:
        time: The time.
        kind: `add` or `drop` (a gradient), `take` (a token), `begin` or `update`: an update begins,
            and ends with new tokens.
        worker: The worker, or None.
        token: The token of that worker, or the number of the update.
        queue: The tokens in the queue.
        gradients: The workers whose gradients are in the accumulators.
    """

    time: int
    kind: str
    worker: int | None
    token: int
    queue: tuple[int, ...]
    gradients: tuple[int, ...]


@dataclass
class Synchronous:
    """A training with TensorFlow's SyncReplicasOptimizer.

    Args:
        compute_ms: For each worker and step: from the token to the gradient. A worker without a
            further entry takes no more tokens.
        needed: The gradients of an update, `replicas_to_aggregate`.
        apply_ms: The time of an update.
    """

    compute_ms: Sequence[Sequence[int]]
    needed: int
    apply_ms: int = APPLY_MS
    works: list[Work] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Simulate until no worker has a further step."""
        self._round, self._applies = 0, False
        self._queue: list[int] = []
        self._gradients: list[int] = []
        self._waiting: list[int] = []
        self._left = [list(times) for times in self.compute_ms]
        self._events: list[tuple[int, int, Work | None]] = []
        for worker in range(len(self.compute_ms)):
            self._start(0, worker, 0)
        while self._events:
            now, _, work = heapq.heappop(self._events)
            if work is None:
                self._finish_update(now)
            else:
                self._send(now, work)

    @property
    def updates(self) -> list[int]:
        """The times at which updates ended."""
        return [each.time for each in self.moments if each.kind == "update"]

    def _start(self, now: int, worker: int, token: int) -> None:
        work = Work(worker, token, now, now + self._left[worker].pop(0))
        self.works.append(work)
        heapq.heappush(self._events, (work.end, worker, work))

    def _send(self, now: int, work: Work) -> None:
        """A gradient arrives: one with a token older than the last update is dropped."""
        work.accepted = work.token >= self._round
        if work.accepted:
            self._gradients.append(work.worker)
        self._note(now, "add" if work.accepted else "drop", work.worker, work.token)
        if self._left[work.worker]:
            self._waiting.append(work.worker)
        self._give_tokens(now)
        self._begin_update(now)

    def _begin_update(self, now: int) -> None:
        if self._applies or len(self._gradients) < self.needed:
            return
        self._applies, self._round = True, self._round + 1
        self._note(now, "begin", None, self._round)
        self._gradients.clear()
        heapq.heappush(self._events, (now + self.apply_ms, len(self._left), None))

    def _finish_update(self, now: int) -> None:
        """One queue gets a token for each worker; any worker may take any of them."""
        self._applies = False
        self._queue += [self._round] * len(self._left)
        self._note(now, "update", None, self._round)
        self._give_tokens(now)
        self._begin_update(now)

    def _give_tokens(self, now: int) -> None:
        while self._queue and self._waiting:
            worker, token = self._waiting.pop(0), self._queue.pop(0)
            self._note(now, "take", worker, token)
            self._start(now, worker, token)

    def _note(self, now: int, kind: str, worker: int | None, token: int) -> None:
        held = tuple(self._queue), tuple(self._gradients)
        self.moments.append(Moment(now, kind, worker, token, *held))


@dataclass(frozen=True, slots=True)
class Frame:
    """One of the 2(n - 1) frames of a ring all-reduce.

    Attributes:
        moves: For each worker: the part that it sends to the next worker.
        held: For each worker and part: the workers whose gradients are summed in it, afterwards.
    """

    moves: tuple[int, ...]
    held: tuple[tuple[frozenset[int], ...], ...]


def ring(workers: int) -> list[Frame]:
    """Return the frames: n - 1 of the reduce-scatter, then n - 1 of the all-gather."""
    held = [[frozenset({worker})] * workers for worker in range(workers)]
    frames = []
    for step in range(2 * (workers - 1)):
        moves = tuple((worker - step) % workers for worker in range(workers))
        sent = [held[worker][part] for worker, part in enumerate(moves)]
        for worker, part in enumerate(moves):
            # In the first half the receiver adds. In the second half it has a part of the sum.
            held[(worker + 1) % workers][part] |= sent[worker]
        frames.append(Frame(moves, tuple(map(tuple, held))))
    return frames


def descent(rate: float, together: int, updates: int) -> list[float]:
    """Return the parameter x of the loss x²/2 from x = 1, after each update.

    Args:
        rate: The learning rate.
        together: This many gradients in turn are computed from the same x.
        updates: The number of updates.
    """
    values = [1.0]
    for update in range(updates):
        gradient = values[update - update % together]
        values.append(values[-1] - rate * gradient)
    return values


def round_robin(sizes: Mapping[str, int], servers: int) -> list[dict[str, int]]:
    """Return the variables of each parameter server, as `replica_device_setter` places them.

    Args:
        sizes: The bytes of each variable, in the order of their creation.
        servers: The number of parameter servers.
    """
    items = list(sizes.items())
    return [dict(items[server::servers]) for server in range(servers)]
