"""`lab reproduce NAME`.

REPRODUCED       a statement, or a number within the range of one more run of ours
INCONCLUSIVE     too few runs, or a range that is too wide to decide (exit code 3)
NOT_REPRODUCED   outside the range, or the opposite of a statement (exit code 1)
OK, FAILED, UNCLEAR: settings and checks of our own, which do not decide the exit code.
docs/how-to/reproduce.md has the rules.

Examples:
    # all claims on a training, by the quick listings
    lab reproduce book-async --quick
    # a first look with two runs of each kind
    lab reproduce book-sync --quick --repeats 2
    # evaluate the newest run, and print JSON
    lab reproduce book-async --runs last --json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from lab.api.reproductions import Reproduction, reproduce
from lab.base.options import Switch, presents
from lab.console import print_json
from lab.errors import InterruptError
from lab.tables import show


@presents(reproduce)
def command(
    reproduced: Callable[..., Reproduction],
    *,
    json: Annotated[bool, Switch("print the results of all claims as JSON")] = False,
) -> None:
    """Run the trainings that a source describes, and evaluate each of its claims."""
    made = reproduced(check=False)
    if json:
        print_json(made.to_json())
    else:
        for part in made.parts():
            show(part)
    if isinstance(made.stopped, KeyboardInterrupt):
        raise InterruptError(
            f"interrupted in {made.reached}", "see the collected runs with `lab runs`"
        )
    if made.stopped is not None:
        raise made.stopped
    # Imported here: importing SciPy takes a second.
    from lab.reproduce.verdicts import check_reproduced  # noqa: PLC0415

    check_reproduced(made.evaluations)
