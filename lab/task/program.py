"""What a training program shares with its run: where it keeps things, and how it fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from lab.task.data import DataError
from lab.task.recorder import Recorder


class ProgramError(Exception):
    """The training cannot go on, for a reason outside of the program."""

    def __init__(self, what: str, mend: str) -> None:
        super().__init__(f"{what}; {mend}")


FAILED = 1
WRONG_INPUT = 2


def run_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """The directory of the run that this program belongs to; None when it was started by hand."""
    value = (os.environ if environment is None else environment).get("LAB_RUN_DIR")
    return Path(value) if value else None


def report_failure(recorder: Recorder) -> None:
    """Let a program that fails say why in a last record, before Python ends it.

    A `ProgramError` (exit code 1) or a `DataError` (exit code 2) is the user's to mend: it gives
    one line on stderr. Everything else keeps its traceback.
    """

    def report(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        first_line = (str(error).splitlines() or [""])[0]
        if isinstance(error, (ProgramError, DataError)):
            recorder.write("final", status="failed", message=first_line)
            print(f"error: {first_line}", file=sys.stderr)
            sys.exit(WRONG_INPUT if isinstance(error, DataError) else FAILED)
        recorder.write("final", status="failed", message=f"{kind.__name__}: {first_line}")
        sys.__excepthook__(kind, error, traceback)

    sys.excepthook = report
