"""A run's summary on stdout."""

from __future__ import annotations

import errno
import os
import sys

from lab.run.summary import Summary
from lab.run.tables import result_table, show


def print_summary(summary: Summary, *, json: bool) -> None:
    """Print a run's table; with `json`, print JSON as the last line of stdout instead.

    A closed terminal is no error: the run has ended as it has.
    """
    try:
        show(result_table(summary), to_stderr=json)
        if json:
            print(summary.to_json())
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # Python would flush once more at its exit, and that would change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
