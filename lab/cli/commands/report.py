"""`lab report RUN…`.

RUN is the id of a run, last or last~1, the directory of a run, a directory of runs, or
an archive of `lab export`. An argument with a slash is always a path. A damaged run is
left out with a warning.

The page needs no network and no other file. lab also writes its figures as PNG and
SVG files to figures/ next to it, or to both-figures/ with --output both.html.
--tensorboard writes to tb/ or both-tb/; `tensorboard --logdir DIRECTORY` shows them.
--output replaces an older page, but no other file. If a run is outside the run store,
the page is ./report.html.

Examples:
    # the newest run: report.html in its directory
    lab report last
    # several runs, to a file
    lab report 20260101-0000-async-aaaa last --output both.html
    # with event files for TensorBoard, in its directory, too
    lab report last --tensorboard
    # all runs of a directory, with a name
    lab report ./runs --label "group 1"
"""

from __future__ import annotations

from lab.api.reports import report
from lab.cli.printing import prints

command = prints(report)
