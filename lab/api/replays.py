"""Replay runs from Python: `lab replay` without its command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Annotated, Final

from lab.api.brief_view import BriefView
from lab.api.results import Run
from lab.console import Output, messages_shown
from lab.console import output as output_of_caller
from lab.errors import InputError
from lab.log import LOG
from lab.options import Argument, Flag, read_options
from lab.options.shared import RunsDir
from lab.project import AnyPath
from lab.run.replay import Player, Recording
from lab.run.view import Clock, View
from lab.store import settings
from lab.store.directory import runs_path
from lab.store.recordings import open_recording
from lab.store.run_info import RunInfo
from lab.store.summarize import summarize
from lab.store.summary import Summary, read_summary

SPEEDS: Final = (0.1, 1000.0)
"""The lowest and the highest speed."""

ReplayView = Callable[[RunInfo, Clock, str], AbstractContextManager[View]]
"""Makes the view of a replay, from the run, its clock, and a title."""


def speed_of(raw: str) -> float:
    """Parse the speed of a replay.

    Raises:
        ValueError: The text is not such a speed.
    """
    try:
        speed = float(raw)
    except ValueError:
        speed = 0.0
    if not SPEEDS[0] <= speed <= SPEEDS[1]:
        raise ValueError(f"a number from {SPEEDS[0]:g} to {SPEEDS[1]:,g}, such as 10")
    return speed


def replay(
    run: Annotated[Run | AnyPath | None, Argument(shows="RECORDING")] = None,
    *,
    speed: Annotated[float | str, Flag(parse=speed_of, shows="N")] = 1.0,
    runs_dir: RunsDir = None,
    view: ReplayView | None = None,
) -> Summary:
    """Show a run that has ended as its client saw it, and return its result as it was recorded.

    What the programs printed has no time, so it is not shown.

    Args:
        run: A recording that comes with lab; or a run's id, a unique prefix of it, last or last~1,
            the directory of a run, or a file of `lab export`.
        speed: Seconds of the run in one second: 10, or 0.5.
        runs_dir: The run store.
        view: What shows the run; None: one line that changes.

    Raises:
        InputError: No run matches, several do, or the run has not ended or never started.
        LabError: A file of the run cannot be read.
        KeyboardInterrupt: The user ended the replay.
    """
    given = read_options(replay, locals())
    if given["run"] is None:
        raise InputError("no run is given", "`lab replay` lists the recordings")
    out = output_of_caller()
    show = view or partial(_brief, out=out)
    with messages_shown(out), open_recording(given["run"], runs_path(runs_dir)) as found:
        player = Player(Recording.read(found))
        summary = read_summary(found.summary_path) or summarize(found)
        info, at_speed = player.recording.info, f"speed {given['speed']:g}"
        LOG.info(f"replay of run {info.run_id} of {made(info)}, at {at_speed}")
        LOG.info(f"its command: `{settings.command(info)}`")
        with show(info, player.clock, f"replay of run {info.run_id}, {at_speed}") as shown:
            player.play(shown, given["speed"])
    return summary


def made(info: RunInfo) -> str:
    """Return when a run was started, in UTC: `2026-11-26 04:48 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(info.started_unix))


@contextmanager
def _brief(info: RunInfo, clock: Clock, _title: str, *, out: Output) -> Iterator[View]:
    try:
        yield BriefView(info, out, clock)
    finally:
        out.draw("")
