"""`lab serve [RUN]`.

The page shows the newest run of the run store, also one that starts later: its tasks, who is
stuck, and its curves. It changes nothing. Open the printed address in a browser on this host; it
has a token that stays the same. For a projector on another host, forward the port with `ssh -L`.
With --speed, a run that has ended is replayed, once, from the moment when a browser opens the page.

Examples:
    # the newest run, whenever it starts; Ctrl-C ends it
    lab serve
    # a recording that comes with lab, five times as fast as it was
    lab serve straggler --speed 5
    # one run, on a port of your choice
    lab serve 20261127-1748-async-4ae9 --port 9000
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Annotated

from lab.api.replays import speed_of
from lab.errors import InputError
from lab.extras import named_extras
from lab.options import Argument, Flag
from lab.options.shared import RunsDir
from lab.options.types import whole
from lab.run.replay import Recording
from lab.store.directory import runs_path
from lab.store.recordings import open_recording


@named_extras()
def command(
    *,
    run: Annotated[
        str | None, Argument("the run or recording (default: always the newest)", shows="RECORDING")
    ] = None,
    port: Annotated[int, Flag("the port on 127.0.0.1", whole(1, 65535), shows="PORT")] = 8700,
    speed: Annotated[
        float | None, Flag("replay the run at this speed: 10, or 0.5", speed_of, shows="N")
    ] = None,
    runs_dir: RunsDir = None,
) -> None:
    """Show a run as a page for the projector, until Ctrl-C."""
    if speed is not None and run is None:
        raise InputError("--speed needs a run", "`lab replay` lists the recordings")
    # Imported here: its packages belong to an extra.
    from lab.board.run_feed import NewestRun, ReplayFeed, RunFeed  # noqa: PLC0415
    from lab.board.server import serve  # noqa: PLC0415
    from lab.board.source import encoded  # noqa: PLC0415

    store = runs_path(runs_dir)
    with ExitStack() as opened:
        feed: NewestRun | ReplayFeed | RunFeed = NewestRun(store)
        if run is not None:
            found = opened.enter_context(open_recording(run, store))
            feed = RunFeed(found) if speed is None else ReplayFeed(Recording.read(found), speed)
        asyncio.run(serve(partial(encoded, "run", feed), port))
