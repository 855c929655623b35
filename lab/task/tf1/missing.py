"""Report data files that a printed program does not find."""

from __future__ import annotations

import functools
import os
import re
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from lab.records.error_line import CHECKPOINT_PART

ERROR: Final = "MissingFileError"
"""The beginning of the program's last line; agents read it as the reason."""

_PRINTING: Final = threading.Lock()

_NOT_FOUND: Final = re.compile(r"(?:.*: )?(\S[^;\n]*); No such file or directory")
_PART: Final = re.compile(rf".*(?:{CHECKPOINT_PART})")
_EMPTY: Final = re.compile(r"\w*Queue '.*' is closed and has insufficient elements")
_RECORDS: Final = frozenset({".tfrecord", ".tfrecords"})


def record_missing_files() -> list[str]:
    """Record the missing files of all later TensorFlow errors.

    A queue runner reads files in its own thread; the main thread gets only the error that the queue
    is closed.

    Returns:
        A list that grows with each error; it has the files as the program names them.
    """
    from tensorflow.python.framework.errors_impl import NotFoundError  # noqa: PLC0415

    noted: list[str] = []
    original_init = NotFoundError.__init__

    @functools.wraps(original_init)
    def init_and_record(self: Any, *args: Any, **kwargs: Any) -> None:
        original_init(self, *args, **kwargs)
        noted.extend(_files_in(self))

    NotFoundError.__init__ = init_and_record
    return noted


def missing_file_line(error: BaseException, noted: Sequence[str], program: str) -> str | None:
    """Return the last line for a program that a missing data file has ended; else None.

    Args:
        error: The error that ended the program.
        noted: The files that TensorFlow did not find.
        program: The program's name.
    """
    files: Sequence[str] = ()
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        files = (error.filename,)
    elif type(error).__name__ == "NotFoundError":
        files = _files_in(error)
    elif type(error).__name__ == "OutOfRangeError" and _EMPTY.search(str(error)):
        files = noted
    missing = [file for file in files if not Path(file).exists()]
    if not missing:
        return None
    file = Path(missing[-1])
    if file.is_absolute():
        hint = "put it there"
    elif file.suffix in _RECORDS:
        command = f"lab data tfrecords {shlex.quote(str(file))}"
        hint = f"in the directory of {program}, run `{command}`"
    else:
        hint = f"put it beside {program}, and name it in the program's text"
    return f"{ERROR}: {file} is missing; {hint}"


def exit_on_missing_file(noted: Sequence[str], program: str) -> None:
    """End the process when a missing file ends one of its threads.

    Such a thread is a queue runner without a coordinator; the main thread would wait for its queue
    forever.

    Args:
        noted: The files that TensorFlow did not find.
        program: The program's name.
    """
    original_hook = threading.excepthook

    def leave(ended: threading.ExceptHookArgs) -> None:
        with _PRINTING:
            original_hook(ended)
        line = (
            None if ended.exc_value is None else missing_file_line(ended.exc_value, noted, program)
        )
        if line is not None:
            exit_with_line(line)

    threading.excepthook = leave


def exit_with_line(line: str) -> NoReturn:
    """Print a last line and end the process before another thread prints a traceback."""
    with _PRINTING:
        sys.stdout.flush()
        print(line, file=sys.stderr, flush=True)
        os._exit(1)


def _files_in(error: BaseException) -> Sequence[str]:
    files = [match[1] for match in _NOT_FOUND.finditer(str(error))]
    return [file for file in files if not _PART.fullmatch(file)]  # TensorFlow writes these
