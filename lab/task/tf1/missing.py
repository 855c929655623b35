"""Data files that a printed program does not find."""

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

ERROR: Final = "MissingFileError"
"""Begins the last line of a program that ends by one, so that it counts as the reason."""

_PRINTING: Final = threading.Lock()

_NOT_FOUND: Final = re.compile(r"(\S[^;\n]*); No such file or directory")
_EMPTY: Final = re.compile(r"\w*Queue '.*' is closed and has insufficient elements")
_RECORDS: Final = frozenset({".tfrecord", ".tfrecords"})


def record_missing_files() -> list[str]:
    """Let TensorFlow's errors say from now on which files are missing.

    A queue runner meets the missing file in a thread of its own; the main thread only learns that
    its queue is closed.

    Returns:
        The files, as the program names them, in the order of the errors.
    """
    from tensorflow.python.framework.errors_impl import NotFoundError  # noqa: PLC0415

    noted: list[str] = []
    begin = NotFoundError.__init__

    @functools.wraps(begin)
    def begin_noting(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        noted.extend(_named(self))

    NotFoundError.__init__ = begin_noting
    return noted


def missing_file_line(error: BaseException, noted: Sequence[str], program: str) -> str | None:
    """The last line of a program that a missing data file has ended; else None.

    Args:
        error: What has ended the program.
        noted: The files that TensorFlow did not find.
        program: The program's name.
    """
    files: Sequence[str] = ()
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
        files = (error.filename,)
    elif type(error).__name__ == "NotFoundError":
        files = _named(error)
    elif type(error).__name__ == "OutOfRangeError" and _EMPTY.search(str(error)):
        files = noted
    gone = [file for file in files if not Path(file).exists()]
    if not gone:
        return None
    file = Path(gone[-1])
    if file.is_absolute():
        hint = "put it there"
    elif file.suffix in _RECORDS:
        command = f"lab data tfrecords {shlex.quote(str(file))}"
        hint = f"make it beside {program} with `{command}`"
    else:
        hint = f"put it beside {program}, which must name it in its text"
    return f"{ERROR}: {file} is missing; {hint}"


def exit_on_missing_file(noted: Sequence[str], program: str) -> None:
    """End the process when a missing file ends one of its threads.

    That is a queue runner without a coordinator. The main thread would wait for its queue for ever.

    Args:
        noted: The files that TensorFlow did not find.
        program: The program's name.
    """
    usual = threading.excepthook

    def leave(ended: threading.ExceptHookArgs) -> None:
        with _PRINTING:
            usual(ended)
        line = (
            None if ended.exc_value is None else missing_file_line(ended.exc_value, noted, program)
        )
        if line is not None:
            exit_with_line(line)

    threading.excepthook = leave


def exit_with_line(line: str) -> NoReturn:
    """End the process with this as its last line: no other thread prints its traceback later."""
    with _PRINTING:
        sys.stdout.flush()
        print(line, file=sys.stderr, flush=True)
        os._exit(1)


def _named(error: BaseException) -> Sequence[str]:
    return [match[1] for match in _NOT_FOUND.finditer(str(error))]
