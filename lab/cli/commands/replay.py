"""`lab replay [RECORDING]`.

Without RECORDING, the recordings that come with lab are listed. Ctrl-C ends a replay.

Examples:
    # the recordings that come with lab
    lab replay
    # synchronous training with a slow worker, five times as fast as it was
    lab replay straggler --speed 5
    # your newest run
    lab replay last --speed 10
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from lab.api.replays import replay
from lab.cli.run_view import print_summary, view_for_stderr
from lab.console import print_json
from lab.formatting import seconds
from lab.log import LOG
from lab.options import presents
from lab.options.shared import AsJson
from lab.run.replay import length_of
from lab.store.recordings import recordings
from lab.store.summary import Summary
from lab.tables import show, table_of
from lab.text import visible


@presents(replay)
def command(replayed: partial[Summary], *, json: AsJson = False) -> None:
    """Replay a run, or list the recordings."""
    if "run" not in replayed.keywords:
        _list(json=json)
        return
    summary = replayed(view=view_for_stderr)
    print_summary(summary, json=json)
    LOG.info(f"this was a replay: the result is that of run {summary.run_id}")


def _list(*, json: bool) -> None:
    """List the recordings that come with lab."""
    known = recordings()
    infos = {name: each.directory.read() for name, each in known.items()}
    if json:
        lengths = {name: {"length_s": length_of(each)} for name, each in infos.items()}
        print_json({name: asdict(each) | lengths[name] for name, each in known.items()})
        return
    rows = table_of(("recording", ">length", "shows"))
    rows.columns[-1].no_wrap = False  # so that the other columns are never cut
    for name, each in known.items():
        rows.add_row(name, seconds(length_of(infos[name])), visible(each.shows))
    show(rows)
