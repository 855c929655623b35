"""`lab runs`.

If a listed run has ended without its client, it is collected first, and one line says so.

Examples:
    # the newest 20, sorted by start time
    lab runs
    # the newest 5 failed runs of one experiment
    lab runs --experiment async --state failed -n 5
    # all runs of another run store, as JSON
    lab runs --runs-dir /tmp/runs --all --json
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.text import Text

from lab.backends.registry import backends
from lab.base.console import print_json
from lab.base.converters import one_of, whole
from lab.base.formatting import counted
from lab.base.log import LOG
from lab.base.options import Flag, Switch
from lab.base.tables import show, terminal_width
from lab.base.text import short, suggestion
from lab.cluster.project import AnyPath
from lab.runner.run_list import STATES, Row, collected_rows, filtered, notes, runs_table
from lab.runner.status import StatusProber
from lab.runner.store.directory import all_runs, infos, runs_path
from lab.verbs.common_options import AsJson, RunsDir
from lab.verbs.results import Run, Runs


def runs(runs_dir: AnyPath | None = None) -> Runs:
    """Return all runs in the local run store, the oldest first.

    A damaged run is one of them; its attributes raise `LabError`.

    Args:
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.

    Raises:
        InputError: The run store is not a directory.
    """
    return Runs(map(Run, all_runs(runs_path(runs_dir))))


def command(
    *,
    last: Annotated[
        int, Flag("list at most this many runs", whole(1, 10**9), shows="COUNT", short="-n")
    ] = 20,
    all_: Annotated[bool, Switch("list all runs")] = False,
    experiment: Annotated[
        str, Flag("list only runs of this experiment or program", shows="EXPERIMENT|PROGRAM")
    ] = "",
    state: Annotated[
        str, Flag("list only runs in this state", one_of(*STATES), shows="STATE")
    ] = "",
    json: AsJson = False,
    runs_dir: RunsDir = None,
) -> None:
    """List the newest runs of the run store; collect those that a dead client left."""
    store = runs_path(runs_dir)
    runs = infos(store)
    begin = -last if not (all_ or experiment or state) else 0
    newest = dict(list(runs.items())[begin:])  # the others need not be read
    listed = collected_rows(newest, StatusProber(backends))
    rows = filtered(listed, last=None if all_ else last, experiment=experiment, state=state)
    if json:
        print_json([asdict(row) for row in rows])
    elif not listed:
        LOG.info(f"no runs in {store}; start one with `lab run async`")
    elif not rows:
        LOG.info(_no_match(store, listed, experiment, state))
    else:
        found, left_out = runs_table(rows, terminal_width(sys.stdout))
        show(found)
        if left_out:
            show(Text(f"hidden at this width: {', '.join(left_out)}; --json prints all", "dim"))
        for line in notes(rows):
            LOG.info(line)
        if len(rows) == last < len(runs) and not all_:
            LOG.info(f"the newest {counted(last, 'run')}; --all lists all {len(runs):,}")


def _no_match(store: Path, listed: Sequence[Row], experiment: str, state: str) -> str:
    """Return the line for filters that match none of the listed runs."""
    filters = {"--experiment": experiment, "--state": state}
    given = " ".join(f"{flag} {short(value)}" for flag, value in filters.items() if value)
    known = {row.experiment for row in listed} - {""}
    hint = suggestion(experiment, known) if experiment and experiment not in known else ""
    what = f"none of the {counted(len(listed), 'run')} in {store} matches {given}"
    return f"{what}; {hint}see `lab runs`"
