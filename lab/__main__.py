"""`python -m lab` and the `lab` command."""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper


def main() -> None:
    """Run one command and exit with its exit code."""
    code = 130  # the exit code of an interrupted command
    try:
        _open_missing_streams()
        if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
            # A label or an id may have characters that the terminal's encoding lacks.
            sys.stdout.reconfigure(errors="backslashreplace")
        # Imported here, because a signal prints no traceback in this block.
        from contextlib import suppress  # noqa: PLC0415

        from lab.base import signals  # noqa: PLC0415

        with suppress(KeyboardInterrupt), signals.as_interrupt():
            from lab.cli import main as run_command  # noqa: PLC0415

            code = run_command(sys.argv[1:])
        signals.exit_on_signal()
    except KeyboardInterrupt:  # during an import
        os._exit(code)
    _drop_unwritten()
    sys.exit(code)


def _open_missing_streams() -> None:
    """Open the standard streams that are closed.

    A missing stdin is then empty, and a missing stderr discards its text. Writing to a missing
    stdout fails, as in other programs (`ls >&-`), because the result would be lost.
    """
    # In this order, because the kernel assigns the lowest free number.
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _drop_unwritten() -> None:
    """Discard output that cannot be written; the interpreter would fail on it again at exit."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


if __name__ == "__main__":
    main()
