"""`lab show RUN`.

Examples:
    # the newest run
    lab show last
    # its summary as JSON
    lab show last --json
    # the notices of its preparation
    lab show last --notices
"""

from __future__ import annotations

from typing import Annotated

from lab.backends.registry import backends
from lab.base.options import Argument, Switch
from lab.console import print_json
from lab.log import LOG
from lab.run.status import StatusProber, status_or_warn
from lab.store.directory import runs_path
from lab.store.names import find_run
from lab.store.summarize import sum_up
from lab.tables import result_table, show
from lab.text import bounded
from lab.verbs.common_options import AsJson, RunsDir


def command(
    *,
    run: Annotated[str, Argument("a run's id, a unique prefix of it, last, or last~1")],
    notices: Annotated[
        bool, Switch("print only the notices of its preparation: the backend, missing GPUs")
    ] = False,
    json: AsJson = False,
    runs_dir: RunsDir = None,
) -> None:
    """Print one run's table, computed from its files."""
    wanted = find_run(run, runs_path(runs_dir))
    found = status_or_warn(wanted, StatusProber(backends))
    summary = sum_up(wanted, found.info, found.statuses)
    if notices:
        if json:
            print_json(found.info.notices)
        elif found.info.notices:
            print("\n".join(map(bounded, found.info.notices)))
        else:
            LOG.info(f"run {wanted.run_id} has no notices")
        return
    if found.note:
        LOG.info(f"run {wanted.run_id}: {found.note}")
    if json:
        print(summary.to_json())
    else:
        show(result_table(summary))
