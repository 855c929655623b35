"""`lab compare RUN RUN…`.

RUN is the id of a run, last or last~1, the directory of a run, a directory of runs, or
an archive of `lab export`. An argument with a slash is always a path.

Examples:
    # the newest run and another one
    lab compare 20260101-0000 last
    # include what is the same
    lab compare 20260101-0000 last --all
    # the same as JSON, with labels
    lab compare 20260101-0000 last --label before --label after --json
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType

from lab.backends.registry import backends
from lab.base.errors import InputError
from lab.base.options import Switch, verb
from lab.base.shipped import named_extras
from lab.runner.status import StatusProber
from lab.runner.store.directory import runs_path
from lab.runner.store.names import open_runs, read_each
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Tabular, prints
from lab.verbs.results import Labels, NamedRuns

if TYPE_CHECKING:
    import pandas as pd  # importing it takes half a second

    from lab.study.comparison import Side


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Tabular):
    """Runs side by side; differences and ratios are to the first run.

    Attributes:
        sides: The runs.
        everything: Whether the tables also have what is the same in all runs.
    """

    sides: Sequence[Side]
    everything: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return all of it as a JSON value."""
        from lab.study.comparison import as_json  # noqa: PLC0415

        return as_json(self.sides)

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return the results: a row for each metric of the run and of each task."""
        import pandas as pd  # noqa: PLC0415

        comparison = self.to_json()
        parts = {"run": comparison["figures"], **comparison["tasks"]}
        rows = [(part, row) for part, several in parts.items() for row in several]
        index = pd.MultiIndex.from_tuples(
            [(part, row["name"]) for part, row in rows], names=["of", "metric"]
        )
        names = [side.label or side.summary.run_id for side in self.sides]
        return pd.DataFrame([row["values"] for _, row in rows], index, names)

    def _shown(self) -> Iterator[RenderableType]:
        """Yield what `lab compare` prints, with an empty line between two tables."""
        from lab.study.comparison import tables  # noqa: PLC0415

        for place, part in enumerate(tables(self.sides, everything=self.everything)):
            yield from ("", part) if place else (part,)


@verb
def compare(
    *runs: NamedRuns,
    label: Labels = (),
    all_: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
) -> Comparison:
    """Print runs side by side.

    Args:
        runs: Runs, ids, `last`, directories of runs, or archives of `lab export`. The first one is
            compared with the others.
        label: No label, one for each argument, or a single one for all of them.
        all_: Also list the settings and metrics that are the same.
        runs_dir: The run store.

    Raises:
        InputError: An argument names no run, or there are not two runs.
        LabError: Fewer than two runs can be read.
    """
    options = locals()
    store = runs_path(runs_dir)
    with open_runs(options["runs"], options["label"], store) as opened:
        if len(opened) == 1:
            raise InputError(f"run {opened[0].name} is the only run", "name another run")
        # Imported here: importing pandas takes half a second.
        from lab.study.comparison import read_side  # noqa: PLC0415

        prober = StatusProber(backends)
        sides = read_each(opened, lambda run: read_side(run, run.probe(prober)), at_least=2)
    return Comparison(sides, all_)


command = prints(compare)
