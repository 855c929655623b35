"""`lab report RUN…`.

RUN is the id of a run, last or last~1, the directory of a run, a directory of runs, or
an archive of `lab export`. An argument with a slash is always a path. A damaged run is
left out with a warning.

The page needs no network and no other file. lab also writes its figures as PNG and
SVG files to figures/ next to it, or to both-figures/ with --output both.html.
--output replaces an older page, but no other file. If a run is outside the run store,
the page is ./report.html.

Examples:
    # the newest run: report.html in its directory
    lab report last
    # several runs, to a file
    lab report 20260101-0000-async-aaaa last --output both.html
    # all runs of a directory, with a name
    lab report ./runs --label "group 1"
"""

from __future__ import annotations

from typing import Annotated

from lab.console import print_json
from lab.options import Arguments, Flag
from lab.options.shared import AsJson, Force, Labels, RunsDir
from lab.service.report import write_report
from lab.store.directory import runs_dir


def command(
    *,
    runs: Annotated[
        tuple[str, ...],
        Arguments("runs: ids, last, last~1, directories, or archives", shows="RUN"),
    ],
    output: Annotated[
        str | None,
        Flag(
            "the page to write (default: in the run's directory; for several, in the run store)",
            shows="FILE",
        ),
    ] = None,
    label: Labels = (),
    verdicts: Annotated[
        str | None, Flag("also show the results of claims that `lab reproduce` wrote", shows="FILE")
    ] = None,
    force: Force = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Write one page with the figures and tables of one or several runs."""
    store = runs_dir(runs_dir_)
    found = write_report(runs, store, labels=label, output=output, verdicts=verdicts, force=force)
    if json:
        files = [str(file) for file in found.figures]
        print_json({"report": str(found.path), "figures": files, "conclusion": found.conclusion})
    else:
        print(found.path)
