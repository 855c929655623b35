"""`lab show RUN`.

Examples:
    # the newest run
    lab show last
    # its summary as JSON
    lab show last --json
    # the notices from its preparation
    lab show last --notices
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text

from lab.backends.registry import backends
from lab.base.log import LOG
from lab.base.options import Argument, Switch, verb
from lab.base.text import bounded
from lab.runner.result_table import result_table
from lab.runner.status import StatusProber, status_or_warn
from lab.runner.store.directory import RunDir, runs_path
from lab.runner.store.names import named_run
from lab.runner.store.summarize import sum_up
from lab.runner.store.summary import Summary
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Note, Tabular, prints
from lab.verbs.results import Run


@dataclass(frozen=True, slots=True, repr=False)
class Results(Tabular):
    """The results of a run, computed from its files.

    Attributes:
        run: The run's directory.
        summary: The results.
        notices: The notices of its preparation: the backend, missing GPUs.
        only_notices: Whether only the notices are shown.
    """

    run: RunDir
    summary: Summary
    notices: Sequence[str]
    only_notices: bool = False

    def to_json(self) -> Any:  # noqa: ANN401  (an object, or a list of notices)
        """Return the summary, or the notices, as a JSON value."""
        return self.notices if self.only_notices else asdict(self.summary)

    def _entries(self) -> list[dict[str, Any]]:
        """Return the tasks of the run."""
        return [asdict(task) for task in self.summary.tasks]

    def _shown(self) -> Sequence[RenderableType]:
        if not self.only_notices:
            return result_table(self.summary).renderables
        none = Note(f"run {self.run.run_id} has no notices")
        return [Text(bounded(each)) for each in self.notices] or [none]


@verb
def show(
    run: Annotated[str | Run, Argument("a run's id, a unique prefix of it, last, or last~1")],
    *,
    runs_dir: RunsDir = None,
    notices: Annotated[
        bool, Switch("print only the notices from its preparation, such as missing GPUs")
    ] = False,
) -> Results:
    """Return the results of a run, computed from its files.

    Raises:
        InputError: No run matches, or several do.
        LabError: `run.json` is missing or unreadable.
    """
    wanted = named_run(str(run), runs_path(runs_dir))
    found = status_or_warn(wanted, StatusProber(backends))
    summary = sum_up(wanted, found.info, found.statuses)
    if found.note and not notices:
        LOG.info(f"run {wanted.run_id}: {found.note}")
    return Results(wanted, summary, found.info.notices, notices)


command = prints(show)
