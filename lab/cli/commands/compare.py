"""`lab compare RUN RUN…`.

RUN is the id of a run, last or last~1, the directory of a run, a directory of runs, or
an archive of `lab export`. An argument with a slash is always a path.

Examples:
    # the newest run and another one
    lab compare 20260101-0000 last
    # also what is the same
    lab compare 20260101-0000 last --all
    # the same as JSON, with names
    lab compare 20260101-0000 last --label before --label after --json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from lab.api.reports import Comparison, compare
from lab.console import print_json
from lab.options import Switch, presents
from lab.options.shared import AsJson
from lab.tables import show


@presents(compare)
def command(
    compared: Callable[[], Comparison],
    *,
    all_: Annotated[bool, Switch("also list the settings and metrics that are the same")] = False,
    json: AsJson = False,
) -> None:
    """Print runs side by side."""
    made = compared()
    if json:
        print_json(made.to_dict())
        return
    # Imported here: importing pandas takes half a second.
    from lab.analysis.comparison_view import tables  # noqa: PLC0415

    for place, part in enumerate(tables(made.sides, everything=all_)):
        if place:
            print()
        show(part)
