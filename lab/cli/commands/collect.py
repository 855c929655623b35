"""`lab collect [RUN]`.

Examples:
    # every run that is not fully collected
    lab collect
    # the newest run; no line is copied twice
    lab collect last
"""

from __future__ import annotations

from typing import Annotated

from lab.log import LOG
from lab.options import Argument, Switch
from lab.options.shared import RunsDir
from lab.service.environments import collect_all, collect_run, locate_run
from lab.service.outcome import check_collected
from lab.store.directory import runs_dir
from lab.tables import result_table, show


def command(
    *,
    run: Annotated[
        str | None,
        Argument("a run's id, a unique prefix of it, last, or last~1 (default: all runs)"),
    ] = None,
    all_sizes: Annotated[bool, Switch("also collect files of more than 1 GiB")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Copy missing output from the run volumes of all environments to the run store."""
    store = runs_dir(runs_dir_)
    if run is None:
        collect_all(store, all_sizes=all_sizes)
        LOG.info(f"all available output of every run is in {store}")
        return
    summary = collect_run(locate_run(run, store), store, all_sizes=all_sizes)
    show(result_table(summary))
    check_collected(summary)
