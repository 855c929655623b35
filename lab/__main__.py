"""`python -m lab` and the `lab` command."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from lab import signals


def main() -> None:
    """Run one command and leave with its exit code."""
    _open_missing_streams()
    code = signals.EXIT_INTERRUPTED
    with suppress(KeyboardInterrupt), signals.as_interrupt():
        # Imported here, where a signal shows no traceback any more.
        from lab.cli import main as run_command  # noqa: PLC0415

        code = run_command(sys.argv[1:])
    signals.exit_on_signal()
    _drop_unwritten()
    sys.exit(code)


def _open_missing_streams() -> None:
    """Give the process the standard streams that it lacks.

    Input is then empty, and errors go nowhere. What is written to the output fails, as with other
    programs (`ls >&-`): a result that nobody gets is no success.
    """
    # In this order: the kernel gives the lowest number that is free.
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _drop_unwritten() -> None:
    """Forget what a standard stream could not take; the interpreter would fail on it once more."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)


if __name__ == "__main__":
    main()
