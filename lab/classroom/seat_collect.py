"""Collects the runs of the queue in a seat's home directory, at the end of a seat or a class.

`lab class down` and `reset` run it as `python -P -m lab.classroom.seat_collect` in a container with
the seat's volume and without a network, after the containers of the queue have ended.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lab.backends.classroom.environment import ClassEnvironment, StateDir
from lab.errors import LabError
from lab.run.recovery import collect_runs, incomplete_runs, uncollected_runs
from lab.store.directory import DEFAULT_RUNS_DIR
from lab.text import short


def collect_all(store: Path) -> list[str]:
    """Collect all runs of the queue into a run store, and remove each run volume that is complete.

    Args:
        store: The run store.

    Returns:
        A line for each environment that could not be collected.
    """
    problems = []
    for state_dir in StateDir.all():
        try:
            record = state_dir.read()
            if record is None:
                continue
            environment = ClassEnvironment(state_dir, record)
            collect_runs(environment, store, anywhere=True)
            if not uncollected_runs(environment, store) and not incomplete_runs(environment, store):
                state_dir.remove(keep_volume=False)
        except (LabError, OSError) as error:
            problems.append(short(f"{state_dir.directory.name}: {error}"))
    return problems


def main() -> int:
    """Collect into the run store of the home directory; return the exit code."""
    os.chdir(Path.home())
    problems = collect_all(Path.home() / DEFAULT_RUNS_DIR)
    sys.stderr.write("".join(f"{line}\n" for line in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
