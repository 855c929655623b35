"""A run's summary on stdout."""

from __future__ import annotations

import errno
import os
import sys

from lab.store.summary import Summary
from lab.tables import result_table, show


def print_summary(summary: Summary, *, json: bool) -> None:
    """Print a run's table; with `json`, print the table to stderr and JSON to stdout.

    A closed terminal is no error: it does not change the result of the run.
    """
    try:
        show(result_table(summary), to_stderr=json)
        if json:
            print(summary.to_json())
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # Python flushes again at exit, and an error there would change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
