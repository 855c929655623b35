"""`lab cancel [RUN]`.

Examples:
    # the newest run
    lab cancel
    # a run by its id, or a prefix of it
    lab cancel 20261121-0810-async-7f3a
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from lab.backends.registry import backends
from lab.base.errors import InputError
from lab.base.options import Argument, verb
from lab.runner.discovery import locate, name_here
from lab.runner.status import volume_status
from lab.runner.store.directory import LAST, runs_path
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Note, Shown, prints

CANCELLED: Final = "cancelled by `lab cancel`"


@dataclass(frozen=True, slots=True, repr=False)
class Cancelled(Shown):
    """A run whose tasks were asked to end.

    Attributes:
        run_id: Its id.
    """

    run_id: str

    def _shown(self) -> Iterator[Note]:
        yield Note(f"run {self.run_id} is cancelled; collect it with `lab attach {self.run_id}`")


@verb
def cancel(run: Annotated[str, Argument()] = LAST, *, runs_dir: RunsDir = None) -> Cancelled:
    """Ask the tasks of a run to end; a client that follows the run collects it.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1 (default: last).
        runs_dir: The run store.

    Raises:
        InputError: No run matches or several do, it has ended, or its environment no longer runs.
    """
    location = locate(run, runs_path(runs_dir), backends(), name_here())
    run_id, environment = location.run.run_id, location.environment
    on_volume = None if environment is None else volume_status(environment, run_id)
    ended = on_volume is None or all(status.state.ended for status in on_volume.statuses.values())
    if environment is None or on_volume is None or ended:
        raise InputError(
            f"run {run_id} has already ended", f"see its result with `lab show {run_id}`"
        )
    if on_volume.stopped:
        raise InputError(
            f"run {run_id} has no task to cancel: its environment no longer runs",
            f"collect its files with `lab attach {run_id}`",
        )
    environment.cancel(run_id, CANCELLED)
    return Cancelled(run_id)


command = prints(cancel)
