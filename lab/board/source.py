"""What a board shows: one run, or always the newest run of a run store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from lab.board.run_feed import RunFeed
from lab.errors import LabError
from lab.store.directory import RunDir


def encoded(feed: Callable[[], RunFeed | None]) -> bytes:
    """Return what a board shows as JSON; a run that cannot be read now is none."""
    run = None
    try:
        if (found := feed()) is not None:
            run = found.now()
    except (LabError, OSError):
        run = None
    return msgspec.json.encode({"run": run})


class NewestRun:
    """The newest run of a run store, whenever it starts."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._starts: dict[str, float] = {}
        self._feed: RunFeed | None = None

    def __call__(self) -> RunFeed | None:
        """Return its feed; None: there is no run.

        Raises:
            LabError: Its `run.json` cannot be read.
        """
        runs = (
            {path.name: RunDir(path) for path in self._store.iterdir()}
            if self._store.is_dir()
            else {}
        )
        for name in runs.keys() - self._starts.keys():
            if runs[name].info_path.is_file():
                self._starts[name] = runs[name].read().started_unix
        known = self._starts.keys() & runs.keys()
        newest = max(known, key=lambda name: (self._starts[name], name), default=None)
        if newest is None:
            self._feed = None
        elif self._feed is None or self._feed.run_id != newest:
            self._feed = RunFeed(runs[newest])
        return self._feed
