"""The comparison of `lab compare`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.registry import backends
from lab.errors import InputError
from lab.run.status import StatusProber
from lab.store.names import open_runs, read_each

if TYPE_CHECKING:
    from lab.analysis.comparison import Side


def compare_runs(
    arguments: Sequence[str], store: Path, *, labels: Sequence[str] = ()
) -> list[Side]:
    """Read runs to show them side by side.

    Args:
        arguments: What `lab.store.names.open_runs` accepts.
        store: The run store.
        labels: No label, one for each argument, or a single one for all of them.

    Raises:
        InputError: An argument names no run, or there are not two runs.
        LabError: Fewer than two runs can be read.
    """
    with open_runs(arguments, labels, store, repeats=False) as runs:
        if len(runs) == 1:
            raise InputError(f"run {runs[0].name} is the only run", "name another run")
        # Imported here: importing pandas takes half a second.
        from lab.analysis.comparison import read_side  # noqa: PLC0415

        prober = StatusProber(backends)
        return read_each(runs, lambda run: read_side(run, run.probe(prober)), at_least=2)
