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

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from rich.console import Group

from lab.backends.registry import backends
from lab.base.console import messages_shown, print_json
from lab.base.log import LOG
from lab.base.options import Argument, Switch, presents
from lab.base.tables import show as show_table
from lab.base.text import bounded
from lab.runner.result_table import result_table
from lab.runner.status import StatusProber, status_or_warn
from lab.runner.store.directory import RunDir, runs_path
from lab.runner.store.names import find_run
from lab.runner.store.summarize import sum_up
from lab.runner.store.summary import Summary
from lab.verbs.common_options import AsJson, RunsDir
from lab.verbs.results import Run
from lab.verbs.shown import Shown


@dataclass(frozen=True, slots=True, repr=False)
class Results(Shown):
    """The results of a run, computed from its files.

    Attributes:
        run: The run's directory.
        summary: The results.
        notices: The notices of its preparation: the backend, missing GPUs.
        note: What is not known of the run now; "" if all is.
    """

    run: RunDir
    summary: Summary
    notices: Sequence[str]
    note: str

    def to_json(self) -> dict[str, Any]:
        """Return the summary as a JSON value."""
        return asdict(self.summary)

    @messages_shown()
    def show(self) -> None:
        """Print the table to stdout, and the note to stderr."""
        if self.note:
            LOG.info(f"run {self.run.run_id}: {self.note}")
        show_table(result_table(self.summary))

    def _shown(self) -> Group:
        return result_table(self.summary)


def show(
    run: Annotated[str | Run, Argument("a run's id, a unique prefix of it, last, or last~1")],
    *,
    runs_dir: RunsDir = None,
) -> Results:
    """Return the results of a run, computed from its files.

    Raises:
        InputError: No run matches, or several do.
        LabError: `run.json` is missing or unreadable.
    """
    wanted = run.directory if isinstance(run, Run) else find_run(run, runs_path(runs_dir))
    found = status_or_warn(wanted, StatusProber(backends))
    summary = sum_up(wanted, found.info, found.statuses)
    return Results(wanted, summary, found.info.notices, found.note)


@presents(show)
def command(
    found: Callable[[], Results],
    *,
    notices: Annotated[
        bool, Switch("print only the notices of its preparation: the backend, missing GPUs")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print one run's table, or the notices of its preparation."""
    made = found()
    if notices and json:
        print_json(made.notices)
    elif notices and made.notices:
        print("\n".join(map(bounded, made.notices)))
    elif notices:
        LOG.info(f"run {made.run.run_id} has no notices")
    elif json:
        if made.note:
            LOG.info(f"run {made.run.run_id}: {made.note}")
        print(made.summary.to_json())
    else:
        made.show()
