"""`lab collect [RUN]`."""

from __future__ import annotations

from typing import Annotated

from lab.cli.arguments import Switch, Word
from lab.cli.options import RunsDir
from lab.console import say
from lab.run.store import runs_dir
from lab.run.tables import result, show
from lab.service.environments import collect_all, collect_run, locate_run
from lab.service.outcome import check_collected


def command(
    *,
    run: Annotated[str | None, Word("a run's id, a unique beginning of it, or last")] = None,
    all_sizes: Annotated[bool, Switch("collect files of any size, not only up to 1 GiB")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Bring home what is on the run volumes of the environments that are up."""
    home = runs_dir(runs_dir_)
    if run is None:
        collect_all(home, say, all_sizes=all_sizes)
        say(f"all that there is of every run is in {home}")
        return
    summary = collect_run(locate_run(run, home), home, say, all_sizes=all_sizes)
    show(result(summary))
    check_collected(summary)
