"""`python -m lab` and the `lab` command."""

from __future__ import annotations

import sys
from contextlib import suppress

from lab import signals, streams


def main() -> None:
    """Run one command and leave with its exit code."""
    streams.open_missing()
    code = signals.INTERRUPTED
    with suppress(KeyboardInterrupt), signals.as_interrupt():
        # Imported here, where a signal shows no traceback any more.
        from lab.cli import main as run_command  # noqa: PLC0415

        code = run_command(sys.argv[1:])
    signals.end_at_once()
    streams.drop_unwritten()
    sys.exit(code)


if __name__ == "__main__":
    main()
