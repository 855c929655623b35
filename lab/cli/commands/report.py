"""`lab report RUN…`.

The page needs no network and no other file. lab also writes its figures as PNG and
SVG files to figures/ next to it, or to both-figures/ with --output both.html.
--output replaces an older page, but no other file.

Examples:
    # the newest run: report.html in its directory
    lab report last
    # several runs, to a file
    lab report 20260101-0000-async-aaaa last --output both.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lab.backends.selection import backends
from lab.cli.arguments import Arguments, Flag
from lab.cli.options import AsJson, Force, RunsDir
from lab.console import notify, print_json
from lab.run.status import StatusProber
from lab.run.store import find_run, runs_dir


def command(
    *,
    runs: Annotated[
        tuple[str, ...],
        Arguments("ids of runs, unique prefixes of them, last, or last~1", shows="RUN"),
    ],
    output: Annotated[
        str | None,
        Flag(
            "the page to write (default: in the run's directory; for several, in the run store)",
            shows="FILE",
        ),
    ] = None,
    verdicts: Annotated[
        str | None, Flag("also show the results of claims that `lab reproduce` wrote", shows="FILE")
    ] = None,
    force: Force = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Write one page with the figures and tables of one or several runs."""
    store = runs_dir(runs_dir_)
    found = {run.run_id: run for run in (find_run(argument, store) for argument in runs)}
    wanted = list(found.values())
    # Imported here: importing matplotlib and pandas takes a second.
    from lab.report.build import build, output_paths  # noqa: PLC0415
    from lab.report.loader import read_runs  # noqa: PLC0415
    from lab.report.verdicts import read_verdicts  # noqa: PLC0415

    where = output_paths([run.path for run in wanted], output, store, force=force)
    claims = read_verdicts(Path(verdicts)) if verdicts is not None else None
    page, figures = build(read_runs(wanted, StatusProber(backends), notify), claims, where, notify)
    if json:
        print_json({"report": str(page), "figures": [str(file) for file in figures]})
    else:
        print(page)
