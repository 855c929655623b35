"""`python -m lab` and the `lab` command."""

from __future__ import annotations

import sys

from lab.cli import main as run_command


def main() -> None:
    """Run one command and leave with its exit code."""
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
