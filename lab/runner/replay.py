"""Replay a run that has ended: what a client would have seen at a time since its start.

Everything is computed from the files in the run's directory: the records with their times, and from
the statuses when each program started and ended. What programs printed has no time, so it is left
out. Some of the sample runs of the notebooks are recordings that come with lab.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from lab.base.errors import InputError, LabError
from lab.base.shipped import SHIPPED
from lab.base.strict_json import parse
from lab.base.text import short
from lab.protocol.records.reader import STEPS, is_time, read_records
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir, RunStatus
from lab.runner.store.gpu_samples import use_by_moment
from lab.runner.store.names import named_run
from lab.runner.store.run_info import RunInfo, convert
from lab.runner.view import Clock, View

LONGEST_S: Final = 1e8
"""The length of a run, in seconds, above which its times cannot be right: three years."""

_TICK_S: Final = 0.05
_LONGEST_TICK_S: Final = 1.0
"""A replay that was suspended continues where it was."""

Place = Callable[[object, float], float]
"""The seconds of the run at a Unix time; the second argument, if it is not a time."""

SAMPLES: Final = SHIPPED / "notebooks" / "samples"


@dataclass(frozen=True, slots=True)
class Event:
    """What a client receives at one moment: one of the last three, the others are None.

    Attributes:
        at_s: The moment, in seconds since the start of the run.
        task: The task; "" for the GPUs of all tasks.
        record: A new record of the task.
        status: The new status of the task.
        gpus: The utilisation of each task's GPUs, from 0 to 1.
    """

    at_s: float
    task: str
    record: Mapping[str, Any] | None = None
    status: TaskStatus | None = None
    gpus: Mapping[str, float] | None = None

    def show(self, view: View) -> None:
        """Pass it to a view."""
        if self.record is not None:
            view.records(self.task, [self.record])
        if self.status is not None:
            view.status(self.status)
        if self.gpus is not None:
            view.gpus(self.gpus)


@dataclass(frozen=True, slots=True)
class Recording:
    """A run that has ended, as events in order of time.

    Attributes:
        info: Its `run.json`, with the final state.
        events: What a client receives; the moments are from 0 to `length_s`.
        length_s: Seconds from the submission to the end of the last task.
    """

    info: RunInfo
    events: Sequence[Event]
    length_s: float

    @classmethod
    def read(cls, run: RunDir) -> Recording:
        """Read the recording in a run's directory.

        Raises:
            InputError: The run has not ended, or has never started.
            LabError: A file cannot be read, or the run's times cannot be right.
            OSError: A file cannot be read.
        """
        status = RunStatus.recorded(run)
        info = status.info
        length_s = length_of(info)
        place = _place(info, length_s)
        events = [
            event
            for task in info.task_names()
            for event in _events_of(
                replace(status.statuses.get(task, TaskStatus(task, State.PENDING)), task=task),
                read_records(run.records(task), info.times),
                place,
                length_s,
            )
        ]
        events += [
            Event(place(time_unix, 0.0), "", gpus=use)
            for time_unix, use in use_by_moment(read_records(run.gpu_samples))
        ]
        return cls(info, sorted(events, key=attrgetter("at_s")), length_s)


class Player:
    """Plays a recording through a view, which must have the player's clock.

    Attributes:
        recording: The recording.
        clock: The clock of the run.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._now_unix = recording.info.zero_unix
        self.clock = Clock(lambda: self._now_unix, lambda: self._now_unix)

    def play(self, view: View, speed: float) -> None:
        """Show the whole recording.

        Args:
            view: The view.
            speed: Seconds of the run in one second.
        """
        at_s, shown_s, before = 0.0, -1.0, time.monotonic()
        waiting = deque(self.recording.events)
        while shown_s < self.recording.length_s:
            while waiting and waiting[0].at_s <= at_s:
                event = waiting.popleft()
                self._now_unix = self.recording.info.zero_unix + event.at_s
                event.show(view)
            self._now_unix = self.recording.info.zero_unix + at_s
            view.tick()
            shown_s = at_s
            time.sleep(_TICK_S)
            now = time.monotonic()
            at_s = min(at_s + min(now - before, _LONGEST_TICK_S) * speed, self.recording.length_s)
            before = now


def length_of(info: RunInfo) -> float:
    """Return the length of a run, in seconds; 0 if its end is not recorded.

    Raises:
        InputError: It has not ended, or has never started.
        LabError: Its times cannot be right.
    """
    run_id = short(info.run_id)
    if not info.state.ended:
        raise InputError(
            f"run {run_id} has not ended: it is {info.state}",
            f"follow it with `lab attach {run_id}`",
        )
    if info.submitted_unix is None:
        raise InputError(
            f"run {run_id} ended before its tasks started", f"see why with `lab show {run_id}`"
        )
    ended_unix = info.submitted_unix if info.stopped_unix is None else info.stopped_unix
    length_s = ended_unix - info.submitted_unix
    if not 0 <= length_s <= LONGEST_S:
        raise LabError(
            f"the times of run {run_id} cannot be right: its length is {length_s:.0f} s",
            "collect or import it again",
        )
    return length_s


def _place(info: RunInfo, length_s: float) -> Place:
    """Return the function that places times in the run; it keeps them within the run."""

    def place(time_unix: object, otherwise: float) -> float:
        if not is_time(time_unix):
            return otherwise
        return min(max(time_unix - info.zero_unix, 0.0), length_s)

    return place


def _events_of(
    final: TaskStatus,
    records: Iterable[Mapping[str, Any]],
    place: Place,
    length_s: float,
) -> Iterator[Event]:
    """Yield the events of one task, in order of time.

    Args:
        final: Its last status.
        records: Its records, in the order in which they were written.
        place: Places times in the run.
        length_s: The length of the run.
    """
    task, reached_s, read = final.task, 0.0, []
    for record in records:
        reached_s = max(reached_s, place(record.get("time_unix"), reached_s))
        read.append(Event(reached_s, task, record=record))
    now = TaskStatus(task, State.PENDING)
    yield Event(0.0, task, status=now)
    ended = Event(place(final.ended_unix, length_s), task, status=final)
    starts = list(_starts(final, place))
    # `sorted` is stable: a program starts before its first record, and ends after its last one.
    ends = [ended] if final.state.ended else []
    for event in sorted([*starts, *read, *ends], key=attrgetter("at_s")):
        if event.status is not None and now.state.ended:
            continue
        yield event
        if event.status is not None:
            now = event.status
        elif (state := _state_after(now.state, event.record or {})) is not now.state:
            now = replace(now, state=state, reason="")
            yield Event(event.at_s, task, status=now)


def _starts(final: TaskStatus, place: Place) -> Iterator[Event]:
    """Yield the status at each start of the program, and at each end that led to a new start."""
    task, first = final.task, final.attempt - len(final.earlier)
    started = [*(start.started_unix for start in final.earlier), final.started_unix]
    reasons = ["", *(start.reason for start in final.earlier)]
    for number, (began, reason) in enumerate(zip(started, reasons, strict=True)):
        status = TaskStatus(task, State.STARTING, first + number, reason, started_unix=began)
        if number:
            ended_s = place(final.earlier[number - 1].ended_unix, 0.0)
            yield Event(ended_s, task, status=replace(status, started_unix=None))
        if began is not None:
            yield Event(place(began, 0.0), task, status=status)


def _state_after(state: State, record: Mapping[str, Any]) -> State:
    """Return the state of a task after a record of its program."""
    if state.ended or state is State.TRAINING:
        return state
    kind, status = record.get("kind"), record.get("status")
    if kind in STEPS:
        return State.TRAINING
    is_ready = status == "ready" or (kind == "start" and status != "starting")
    return State.READY if is_ready else state


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample run, as `index.json` describes it.

    Attributes:
        run: Its id.
        command: The command that made it.
        shows: What it shows, as a short text.
        recording: Its name for `lab attach`, or "".
    """

    run: str
    command: str
    shows: str
    recording: str = ""

    @property
    def directory(self) -> RunDir:
        """Its directory."""
        return RunDir(SAMPLES / self.run)


def recordings() -> Mapping[str, Sample]:
    """Return the recordings that come with lab, by name."""
    index = parse((SAMPLES / "index.json").read_text("utf-8"))
    samples = [convert(sample, Sample) for sample in index.values()]
    return {sample.recording: sample for sample in samples if sample.recording}


def find_recorded(argument: str, store: Path) -> RunDir:
    """Find a recording that comes with lab, or a run.

    Args:
        argument: The name of a recording; or a run's id, a unique prefix of it, last or last~1, or
            the directory of a run.
        store: The run store.

    Raises:
        InputError: It names no run, or several.
        LabError: A directory cannot be read.
    """
    known = recordings()
    if argument in known:
        return known[argument].directory
    try:
        return named_run(argument, store)
    except InputError as error:
        names = ", ".join(known)
        raise InputError(error.what, f"{error.fix}; recordings are {names}") from error


def recorded_elsewhere(argument: str, store: Path) -> RunDir | None:
    """Find a recording that comes with lab, or a run by its directory outside of the run store.

    Returns:
        Its directory; None if the argument names a run of the run store, or of a run volume.

    Raises:
        InputError: The path has no run, or several.
        LabError: A directory cannot be read.
    """
    if argument not in recordings() and "/" not in argument:
        return None
    run = find_recorded(argument, store)
    return None if run.path.resolve().parent == store.resolve() else run
