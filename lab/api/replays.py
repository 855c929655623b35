"""Show a run that has ended as its client saw it, from its records."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final

from lab.api.brief_view import BriefView
from lab.console import Output
from lab.log import LOG
from lab.run.replay import Player, Recording
from lab.run.view import Clock, View
from lab.store import settings
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.store.summary import read_summary

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


def replay(run: RunDir, speed: float | None, show: ReplayView) -> None:
    """Show a run that has ended in a view.

    What the programs printed has no time, so it is not shown.

    Args:
        run: The run.
        speed: Seconds of the run in one second; None: as fast as it can be read.
        show: Makes the view.

    Raises:
        InputError: The run has not ended, or has never started.
        LabError: A file of the run cannot be read.
        KeyboardInterrupt: The user ended the replay.
    """
    player = Player(Recording.read(run))
    read_summary(run.summary_path)  # a damaged one is named before the replay
    info = player.recording.info
    at_speed = "" if speed is None else f", at speed {speed:g}"
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(info.started_unix))
    LOG.info(f"replay of run {info.run_id} of {started}{at_speed}")
    LOG.info(f"its command: `{settings.command(info)}`")
    with show(info, player.clock, f"replay of run {info.run_id}{at_speed}") as shown:
        player.play(shown, math.inf if speed is None else speed)


def brief_replay(out: Output) -> ReplayView:
    """Return what shows a replay in one line that changes."""
    return partial(_brief, out=out)


@contextmanager
def _brief(info: RunInfo, clock: Clock, _title: str, *, out: Output) -> Iterator[View]:
    try:
        yield BriefView(info, out, clock)
    finally:
        out.draw("")
