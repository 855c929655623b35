"""`lab attach [RUN]`.

RUN defaults to the newest run. If its client died, its files are collected from the run volume.
lab comes with the recordings late-worker, straggler and killed-ps.

With --web, a page shows the newest run, and then each run that starts later. The page is read-only.
Open the printed address in a browser on this host; its token stays the same. To show the page on
another host, forward the port with `ssh -L`.

Examples:
    # follow the newest run; it continues after Ctrl-C
    lab attach
    # replay a recording that comes with lab at five times its speed
    lab attach straggler --speed 5
    # serve a live web page until Ctrl-C
    lab attach --web
"""

from __future__ import annotations

import asyncio
import math
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.base.console import messages_shown
from lab.base.console import output as output_of_caller
from lab.base.converters import whole
from lab.base.errors import InputError, InterruptError
from lab.base.log import LOG
from lab.base.options import Argument, Flag, Switch, reads_options
from lab.cluster.project import AnyPath
from lab.protocol.volume import Request
from lab.runner.discovery import locate, name_here
from lab.runner.recovery import collect_one, needs_collection, remove_stopped
from lab.runner.replay import Player, Recording, find_recorded, recorded_elsewhere
from lab.runner.runner import RunInterruptedError
from lab.runner.status import StatusProber, finalize
from lab.runner.store import settings
from lab.runner.store.directory import LAST, RunDir, runs_path
from lab.runner.store.summary import read_summary
from lab.runner.verdict import check_succeeded
from lab.runner.view import MakeView
from lab.verbs.common_options import RunsDir
from lab.verbs.inputs import check_main_thread
from lab.verbs.printing import Called, prints
from lab.verbs.results import Run
from lab.verbs.run_view import brief_view, print_summary, view_for_stderr

SPEEDS: Final = (0.1, 1000.0)
"""The lowest and the highest speed of a replay."""


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


@reads_options
def attach(
    run: Annotated[str | AnyPath | None, Argument()] = None,
    *,
    speed: Annotated[float | str | None, Flag(parse=speed_of, shows="N")] = None,
    all_sizes: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
    web: Annotated[bool, Switch("show the run on a live web page until Ctrl-C")] = False,
    port: Annotated[
        int | None, Flag("the port of the page on 127.0.0.1", whole(1, 65535), shows="PORT")
    ] = None,
    check: bool = True,
    quiet: bool = False,
    view: MakeView | None = None,
) -> Run:
    """Follow a run and those that continue it, or replay one that has ended.

    Files that are still on the run volume are collected. Ctrl-C does not stop the run.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1 (default: last); for a replay,
            also a recording that comes with lab, or the directory of a run.
        speed: Speed of a replay: 10 or 0.5 times that of the run (default: as fast as possible).
        all_sizes: Also collect files of more than 1 GiB.
        runs_dir: The run store.
        web: Show the run on a live web page until Ctrl-C.
        port: The port of the page.
        check: Whether a run that fails, or has unexpected results, is an error.
        quiet: Print nothing but warnings.
        view: What shows the run; None: one line that changes.

    Returns:
        The last run.

    Raises:
        InputError: No run matches, or several do.
        LabError: The run cannot be followed; with `check`, also: it did not succeed.
        RunInterruptedError: The user stopped following; the run continues.
    """
    check_main_thread("attach")
    options = locals()
    store, out, name = runs_path(runs_dir), output_of_caller(), options["run"] or LAST
    if web:
        _serve(options["run"], store, options["speed"], port)
    elif port is not None:
        raise InputError("--port needs --web", "add --web")
    shown = view or partial(brief_view, out=out, quiet=quiet)
    with messages_shown(out, quiet=quiet):
        if (elsewhere := recorded_elsewhere(name, store)) is not None:
            _replay(elsewhere, options["speed"], shown)
            return Run(elsewhere)
        run_id = name.rpartition("/")[2]
        done, is_new = _collected(run_id, store, shown, all_sizes=all_sizes)
        if not is_new and not quiet and done.read().has_started:
            _replay(done, options["speed"], shown)
        if check:
            check_succeeded(done, Run(done).summary)
    return Run(done)


def _replay(run: RunDir, speed: float | None, view: MakeView) -> None:
    """Show a run that has ended in a view.

    What the programs printed has no time, so it is not shown.

    Args:
        run: The run.
        speed: Seconds of the run in one second; None: as fast as it can be read.
        view: What shows it.

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
    with view(info, player.clock, f"replay of run {info.run_id}{at_speed}") as shown:
        player.play(shown, math.inf if speed is None else speed)


def _collected(
    argument: str, store: Path, view: MakeView, *, all_sizes: bool
) -> tuple[RunDir, bool]:
    """Follow and collect a run, unless it is complete.

    Returns:
        The last run that continues it, and whether its end is new: it was followed, or is lost.
    """
    location = locate(argument, store, backends(), name_here())
    if location.request is None or location.environment is None:
        is_new = not location.run.read().state.ended
        finalize(location.run, StatusProber(backends))
        if all_sizes:
            run_id = location.run.run_id
            raise InputError(
                f"run {run_id} is not on any run volume, so nothing can be collected",
                f"see its collected results with `lab show {run_id}`",
            )
        return location.run, is_new
    if not (all_sizes or needs_collection(location.run)):
        return location.run, False
    done = _followed(location.request, location.environment, store, view)
    if all_sizes:
        collect_one(location.request, location.environment, store, all_sizes=True)
        remove_stopped(location.environment, store)
    return done, True


def _followed(first: Request, environment: Environment, store: Path, view: MakeView) -> RunDir:
    """Follow a run, and those that continue it; return the last one.

    Raises:
        RunInterruptedError: The user stopped following.
    """
    request: Request | None = first
    run = RunDir(store / first.run_id)
    try:
        while request is not None:
            summary = collect_one(request, environment, store, follow=True, view=view)
            run = RunDir(store / summary.run_id)
            request = environment.continuation(summary.run_id)
    except KeyboardInterrupt:
        raise RunInterruptedError(run) from None
    LOG.info(f"environment {environment.project!r} is kept; remove it with `lab down`")
    return run


def _present(attached: Called, *, json: bool) -> None:
    try:
        done: Run = attached()
    except RunInterruptedError as interrupt:
        run_id = interrupt.run.run_id
        raise InterruptError(
            f"detached from run {run_id}, which keeps running",
            f"follow it again with `lab attach {run_id}`, or stop it with `lab cancel`",
        ) from None
    summary = done.summary
    print_summary(summary, json=json)
    store = runs_path(attached.keywords.get("runs_dir"))
    if done.path.resolve().parent == store.resolve():  # a recording may show a failure
        check_succeeded(done.directory, summary)


def _serve(run: str | None, store: Path, speed: float | None, port: int | None) -> None:
    """Serve the page of a run, or of the newest one."""
    if speed is not None and run is None:
        raise InputError("--speed needs a run", "name one, such as `straggler`")
    # Imported here: its packages belong to an extra.
    from lab.teach.board.run_feed import NewestRun, ReplayFeed, RunFeed  # noqa: PLC0415
    from lab.teach.board.server import PORT, Feed, encoded, serve  # noqa: PLC0415

    feed: Feed = NewestRun(store)
    if run is not None:
        found = find_recorded(run, store)
        if speed is None:
            feed = RunFeed(found)
        else:
            feed = ReplayFeed(Recording.read(found), speed)
    asyncio.run(serve(partial(encoded, "run", feed), port or PORT))


command = prints(
    attach, _present, json="print the summary as JSON, as the last line of stdout",
    view=view_for_stderr, check=False,
)  # fmt: skip
