"""`lab sweep EXPERIMENT --over "…"`.

The first quantity of --over is tested for trends, while the others are constant.
`workers` varies the number of tasks of job `worker`. All points use the same seeds.

Examples:
    # the effect of stale gradients on the loss
    lab sweep staleness --over "workers=1,2,4" --cluster clusters/laptop.yaml
    # write a row for each run to a file
    lab sweep async --over "batch_size=50,100" --repeats 1 --epochs 1 --csv b.csv
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from lab.analysis.sweep import check_succeeded
from lab.api.sweeps import Sweep, sweep
from lab.console import print_json
from lab.errors import InterruptError
from lab.files import check_output, write_output
from lab.formatting import counted
from lab.options import Flag, Switch, presents
from lab.options.shared import Force
from lab.tables import show


@presents(sweep)
def command(
    swept: Callable[..., Sweep],
    *,
    csv: Annotated[str | None, Flag("write a row for each run to this file", shows="FILE")] = None,
    force: Force = False,
    json: Annotated[bool, Switch("print all results as JSON")] = False,
) -> None:
    """Run an experiment at every point of a grid, and test for trends."""
    if csv is not None:
        check_output("--csv", Path(csv), _is_table, force=force)
    made = swept(check=False)
    try:
        if made.results:
            _show(made, json=json, csv=csv)
    finally:
        if isinstance(made.stopped, KeyboardInterrupt):
            raise InterruptError(
                f"the sweep was interrupted after {len(made.results)}"
                f" of {counted(made.planned, 'run')}",
                "see the collected runs with `lab runs`",
            )
        if made.stopped is not None:
            raise made.stopped
    check_succeeded(made.results)


def _is_table(begin: bytes) -> bool:
    """Whether a file that begins with these bytes is the table of an earlier sweep."""
    return begin.startswith(b"run_id,state,")


def _show(made: Sweep, *, json: bool, csv: str | None) -> None:
    """Print the tables, and write the file of --csv."""
    # Imported here: importing SciPy takes a second.
    from lab.analysis.sweep_statistics import as_csv, as_json, settings_table, trends_table  # noqa: PLC0415

    results, settings, found = made.results, made.settings, made.trends
    if csv is not None:
        write_output(Path(csv), as_csv(results).encode())
    if json:
        print_json(as_json(results, settings, found))
        return
    show(settings_table(results, settings))
    if found:
        print()
        show(trends_table(found))
    if len(found) > 1:
        print(f"\nEach p is for one trend alone: of {len(found)}, some may be small by chance.")
