"""`lab serve [RUN]`.

The page shows the newest run of the run store, also one that starts later: its tasks, who is
stuck, and its curves. It changes nothing. Open the printed address in a browser on this host; it
has a token that stays the same. For a projector on another host, forward the port with `ssh -L`.

Examples:
    # the newest run, whenever it starts; Ctrl-C ends it
    lab serve
    # one run, on a port of your choice
    lab serve 20261127-1748-async-4ae9 --port 9000
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from lab.extras import named_extras
from lab.log import LOG
from lab.options import Argument, Flag
from lab.options.shared import RunsDir
from lab.options.types import whole
from lab.store.directory import runs_path
from lab.store.names import find_run

PORT = 8700
_LAST_PORT = 65535


@named_extras()
def command(
    *,
    run: Annotated[
        str | None, Argument("the run (default: always the newest)", shows="RUN")
    ] = None,
    port: Annotated[int, Flag("the port on 127.0.0.1", whole(1, _LAST_PORT), shows="PORT")] = PORT,
    runs_dir: RunsDir = None,
) -> None:
    """Show a run as a page for the projector, until Ctrl-C."""
    # Imported here: its packages belong to an extra.
    from lab.board.run_feed import RunFeed  # noqa: PLC0415
    from lab.board.server import serve  # noqa: PLC0415
    from lab.board.source import NewestRun, encoded  # noqa: PLC0415

    store = runs_path(runs_dir)
    if run is None:
        source = partial(encoded, NewestRun(store))
    else:
        feed = RunFeed(find_run(run, store))
        source = partial(encoded, lambda: feed)

    def ready(address: str) -> None:
        print(address, flush=True)
        LOG.info("open this address in a browser here; Ctrl-C ends the board")

    asyncio.run(serve(source, port, ready))
