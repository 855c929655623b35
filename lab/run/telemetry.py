"""`gpu.jsonl`: what a run's cards do, sampled once a second while somebody follows the run.

Whoever follows a run samples, in a thread of its own; while nobody does, nothing is sampled, and
the gap is to be seen in `time_unix`. No fault of the driver or of the disk ends the run.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from lab.gpu import NvmlError
from lab.run.directory import RunDir, RunInfo
from lab.run.gpu_use import cards_of, lines_of, use_now
from lab.run.lifecycle import View
from lab.run.view import watching
from lab.task.files import append_whole
from lab.threads import signals_blocked

if TYPE_CHECKING:
    from lab.gpu.sampler import Sample

PERIOD_S: Final = 1.0
"""From one sample to the next."""

PATIENCE_S: Final = 2.0
"""So long the end of a run waits for a driver that does not answer."""

_LONGEST_LINE: Final = 4096


class Cards(Protocol):
    """Cards that are open."""

    def sample(self) -> Sequence[Sample]:
        """What each of them does now."""


Open = Callable[[Sequence[str]], AbstractContextManager[Cards]]
"""Opens cards by their device ids."""


class End(Protocol):
    """An event that says that nobody follows any more."""

    def is_set(self) -> bool:
        """Whether it has come."""

    def wait(self, timeout: float) -> bool:
        """Wait for it, for so many seconds; whether it has come."""


@contextmanager
def followed(run: RunDir) -> Iterator[View]:
    """The view of a run that is followed, with its cards sampled meanwhile."""
    with watching(run.read) as view, watched(run, run.read(), view):
        yield view


@contextmanager
def watched(run: RunDir, info: RunInfo, view: View) -> Iterator[None]:
    """Sample the cards of a run until the block ends; nothing at all where it holds none.

    Args:
        run: Whose `gpu.jsonl` grows.
        info: Says which task holds which card.
        view: Receives the newest figures, and one notice if sampling has to end early; from
            another thread.
    """
    cards = cards_of(info)
    if not cards or info.state.ended:
        yield
        return
    end = threading.Event()
    thread = threading.Thread(
        target=sample_until,
        args=(end, run.gpu_samples, cards, view),
        name="lab-telemetry",
        daemon=True,
    )
    with signals_blocked():
        thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(PATIENCE_S)


def sample_until(
    end: End,
    path: Path,
    cards: Mapping[str, Sequence[str]],
    view: View,
    *,
    opened: Open | None = None,
    clock: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> None:
    """Append a line for each card and task to a file, once a second.

    Args:
        end: When to stop; a sample that is under way then is not written.
        path: The file; it is made with the first sample.
        cards: Task → device ids of its cards.
        view: Receives each moment's figures, and one notice where sampling ends early.
        opened: Opens the cards; by default through NVML.
        clock: Seconds since the epoch.
        monotonic: Seconds that never run back.
    """
    ids = tuple(dict.fromkeys(card for each in cards.values() for card in each))
    try:
        with (opened or _nvml)(ids) as open_cards:
            due, answered = monotonic(), False
            while not end.is_set():
                moment, samples = clock(), open_cards.sample()
                if end.is_set():
                    return
                answered = answered or bool(samples)
                if not answered:  # the containers run on another box, for one
                    view.notice("no GPU telemetry: this box has none of the run's cards")
                    return
                lines = lines_of(moment, samples, cards)
                append_lines(path, lines)
                view.gpus(use_now(lines))
                due = next_due(due, monotonic())
                end.wait(due - monotonic())
    except NvmlError as error:
        view.notice(f"no GPU telemetry from here on: {error.what}")
    except OSError as error:
        view.notice(f"no GPU telemetry from here on: {path.name}: {error.strerror or error}")


def next_due(due: float, now: float) -> float:
    """The next whole period behind `due` that is still to come; what was missed stays missed."""
    return due + PERIOD_S * max(1, math.floor((now - due) / PERIOD_S) + 1)


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Append whole lines; half a line that a killed process has left is cut off before.

    Raises:
        OSError: They cannot be written; the file then ends with the last whole line before them.
    """
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
    try:
        size = _cut_half_line(descriptor)
        append_whole(descriptor, data, size)
    finally:
        os.close(descriptor)


def _cut_half_line(descriptor: int) -> int:
    """Cut off what stands behind the last line end; the size that is left."""
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LONGEST_LINE)
    last = os.pread(descriptor, size - start, start)
    if not last or last.endswith(b"\n"):
        return size
    size = start + last.rfind(b"\n") + 1
    os.ftruncate(descriptor, size)
    return size


def _nvml(device_ids: Sequence[str]) -> AbstractContextManager[Cards]:
    from lab.gpu.sampler import Sampler  # noqa: PLC0415  (NVML only for runs that hold a card)

    return Sampler(device_ids)
