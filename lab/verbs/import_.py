"""`lab import FILE…`.

Imported runs are read-only: `lab show`, `compare`, `report` and others read them, but you cannot
resume, follow, cancel or collect them, and `last` never refers to them.

Examples:
    # the run of another machine
    lab import 20260101-0000-async-aaaa.lab.tar.gz
    # into another run store
    lab import 20260101-0000-async-aaaa.lab.tar.gz --runs-dir class
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from lab.base.errors import LabError
from lab.base.options import Arguments, verb
from lab.cluster.project import AnyPath
from lab.runner.store.archive import same_content, unpack
from lab.runner.store.directory import RunDir, runs_path
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Note, Tabular, prints

_IMPORTING: Final = ".import-"
"""The beginning of the name of a directory in the run store that an import fills."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A run that is in the run store after an import.

    Attributes:
        run: Its directory.
        is_new: Whether this import wrote it; otherwise it was already there.
    """

    run: RunDir
    is_new: bool


class Imports(Tabular, list[Imported]):
    """The runs of several archives."""

    def to_json(self) -> list[dict[str, Any]]:
        """Return a JSON value for each run."""
        return [
            {"run_id": each.run.run_id, "path": str(each.run.path), "new": each.is_new}
            for each in self
        ]

    def _shown(self) -> Iterator[Note]:
        for each in self:
            state = "imported into" if each.is_new else "already there:"
            yield Note(f"run {each.run.run_id} is {state} {each.run.path}")


@verb
def import_(
    *files: Annotated[AnyPath, Arguments("archives that `lab export` wrote", shows="FILE")],
    runs_dir: RunsDir = None,
) -> Imports:
    """Read archives of runs into the run store: all of them, or none.

    Args:
        files: Archives that `export` wrote.
        runs_dir: The run store; it is created if it is missing.

    Raises:
        LabError: An archive is not valid, or the run store has another run with its id.
    """
    store = runs_path(runs_dir)
    imported: dict[str, tuple[RunDir, bool]] = {}
    try:
        store.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_IMPORTING, dir=store) as name:
            for number, file in enumerate(files):
                run = unpack(Path(file), Path(name) / str(number))
                known = RunDir(store / run.run_id)
                other, _ = imported.get(run.run_id, (known, False))
                is_known = other.path.exists()
                if is_known and not same_content(run, other):
                    raise LabError(
                        f"{file}: {store} has another run with the id {run.run_id}",
                        "import it into another run store with --runs-dir",
                    )
                imported.setdefault(run.run_id, (run, not is_known))
            for run, is_new in imported.values():
                if is_new:
                    run.path.rename(store / run.run_id)
            return Imports(
                Imported(RunDir(store / run_id), new) for run_id, (_, new) in imported.items()
            )
    except OSError as error:
        problem = f"the run cannot be written to {store}: {error.strerror or error}"
        raise LabError(problem, "use another run store with --runs-dir") from error


command = prints(import_)
