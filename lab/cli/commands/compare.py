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

from lab.api.reports import compare
from lab.cli.printing import prints

command = prints(compare)
