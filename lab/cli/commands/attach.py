"""`lab attach [RUN]`.

Without RUN, it is the newest run. What a dead client left on the run volume is collected. The
recordings late-worker, straggler and killed-ps come with lab.

With --web, the page shows the newest run, also one that starts later. It changes nothing. Open the
printed address in a browser on this host; it has a token that stays the same. For a projector on
another host, forward the port with `ssh -L`.

Examples:
    # follow the newest run; it continues after Ctrl-C
    lab attach
    # show a recording that comes with lab, five times as fast as it was
    lab attach straggler --speed 5
    # a page for the projector, until Ctrl-C
    lab attach --web
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated

from lab.api.following import attach
from lab.api.results import Run
from lab.base.converters import whole
from lab.base.options import Flag, Switch, presents
from lab.cli.run_view import print_summary, view_for_stderr
from lab.errors import InputError, InterruptError
from lab.run.outcome import check_succeeded
from lab.run.replay import Recording
from lab.run.runner import RunInterruptedError
from lab.store.directory import runs_path
from lab.store.recordings import find_recorded, recorded_elsewhere


@presents(attach)
def command(
    attached: partial[Run],
    *,
    web: Annotated[bool, Switch("show the run as a page for the projector, until Ctrl-C")] = False,
    port: Annotated[
        int | None, Flag("the port of the page on 127.0.0.1", whole(1, 65535), shows="PORT")
    ] = None,
    json: Annotated[bool, Switch("print the summary as JSON, as the last line of stdout")] = False,
) -> None:
    """Follow a run that trains, show one that has ended again, and collect what is left of it."""
    run = attached.keywords.get("run")
    store = runs_path(attached.keywords.get("runs_dir"))
    if web:
        _serve(run, store, attached.keywords.get("speed"), port)
        return
    if port is not None:
        raise InputError("--port is given without --web", "add --web")
    try:
        done = attached(view=view_for_stderr, check=False)
    except RunInterruptedError as interrupt:
        run_id = interrupt.run.run_id
        raise InterruptError(
            f"detached from run {run_id}, which continues",
            f"`lab attach {run_id}` follows it again, `lab cancel` stops it",
        ) from None
    summary = done.summary
    print_summary(summary, json=json)
    if run is None or recorded_elsewhere(run, store) is None:
        check_succeeded(done.directory, summary)


def _serve(run: str | None, store: Path, speed: float | None, port: int | None) -> None:
    """Serve the page of a run, or of the newest one."""
    if speed is not None and run is None:
        raise InputError("--speed is given without a run", "name the run, such as `straggler`")
    # Imported here: its packages belong to an extra.
    from lab.board.run_feed import NewestRun, ReplayFeed, RunFeed  # noqa: PLC0415
    from lab.board.server import PORT, Feed, encoded, serve  # noqa: PLC0415

    feed: Feed = NewestRun(store)
    if run is not None:
        found = find_recorded(run, store)
        if speed is None:
            feed = RunFeed(found)
        else:
            feed = ReplayFeed(Recording.read(found), speed)
    asyncio.run(serve(partial(encoded, "run", feed), port or PORT))
