"""Show the notices of a run's preparation; those of the last run again in one line."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from lab.errors import LabError, Notify
from lab.formatting import counted
from lab.service.planning import Project
from lab.store.directory import RunDir

NEWEST_RUNS: Final = 20
"""The number of newest runs among which the last run of a config is searched."""

_WARNING: Final = "warning: "


class FoldedNotices:
    """Passes notices on, but those that the last run had as one line at the end.

    Warnings are always passed on. After an error, every notice is shown in full.
    """

    def __init__(self, known: Collection[str], notify: Notify, store: Sequence[str] = ()) -> None:
        """Take the notices that the user has seen.

        Args:
            known: The notices of the last run; empty: each notice is shown at once.
            notify: Shows one line.
            store: The flags of this command that name the run store.
        """
        self._known, self._notify = known, notify
        self._command = shlex.join(("lab", "show", "last", "--notices", *store))
        self._held: list[str] = []

    def __enter__(self) -> Self:
        """Begin with the preparation."""
        return self

    def notify(self, line: str) -> None:
        """Show a new notice, or hold one that the last run had."""
        if line in self._known and not line.startswith(_WARNING):
            self._held.append(line)
        else:
            self._notify(line)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Show the notices that were held: in one line, or in full after an error."""
        self._known = ()  # a later notice is shown at once
        if error is None and len(self._held) > 1:
            count = counted(len(self._held), "notice")
            self._notify(f"{count} as in the last run; `{self._command}` prints them")
            return
        for line in self._held:
            self._notify(line)


def last_notices(store: Path, project: Project) -> frozenset[str]:
    """Return the notices of the last run of this config; none if it cannot be found or read.

    The names of runs begin with their start time, so no other `run.json` is read.
    """
    with suppress(OSError):
        newest = sorted(store.iterdir(), key=lambda path: path.name, reverse=True)
        for path in newest[:NEWEST_RUNS]:
            with suppress(LabError, OSError):
                info = RunDir(path).read()
                if (info.project, info.cluster_file) == (
                    project.cluster.name,
                    str(project.path or ""),
                ):
                    return frozenset(info.notices)
    return frozenset()
