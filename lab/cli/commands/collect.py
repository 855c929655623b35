"""`lab collect [RUN]`.

Examples:
    # every run that is not fully collected
    lab collect
    # the newest run; no line is copied twice
    lab collect last
"""

from __future__ import annotations

from functools import partial

from lab.api.following import collect
from lab.api.results import Run
from lab.log import LOG
from lab.options import presents
from lab.run.outcome import check_collected
from lab.store.directory import runs_path
from lab.tables import result_table, show


@presents(collect)
def command(collected: partial[Run | None]) -> None:
    """Copy missing output from the run volumes of all environments to the run store."""
    found = collected(check=False)
    if found is None:
        store = runs_path(collected.keywords.get("runs_dir"))
        LOG.info(f"all available output of every run is in {store}")
        return
    summary = found.summary
    show(result_table(summary))
    check_collected(summary)
