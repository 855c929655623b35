"""Cancels the runs in a seat when the time of its class is over; the programs save their state.

The service of `lab.classroom.end_service` runs it in each seat as
`python -P -m lab.classroom.seat_end`. It prints the number of runs that had not ended. The queue
ends its own runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from lab.backends.environment import Environment
from lab.backends.names import LOCAL
from lab.backends.registry import backends
from lab.classroom.class_time import OVER
from lab.errors import LabError
from lab.run.discovery import statuses_of
from lab.run.removal import run_all
from lab.volume import Request
from lab.volume.continuation import next_step


def cancel_all() -> int:
    """Cancel each run of the local backend that has not ended; return their number.

    Raises:
        LabError: A run cannot be cancelled; the others are cancelled all the same.
    """
    found = list(_under_way())
    run_all(partial(_cancel, *each) for each in found)
    return len(found)


def _under_way() -> Iterator[tuple[Environment, Request]]:
    for backend in backends(LOCAL):
        for environment in backend.all():
            # Earlier runs had ended before the newest one was submitted.
            for request in environment.runs()[-1:]:
                statuses = statuses_of(environment, request.run_id).values()
                if not all(each.state.ended for each in statuses):
                    yield environment, request


def _cancel(environment: Environment, request: Request) -> None:
    """Cancel a run; a second cancellation changes nothing."""
    step = next_step(request, statuses_of(environment, request.run_id))
    environment.cancel(request.run_id, f"{OVER}; {step}")


def main() -> int:
    """Cancel the runs, print their number, and return the exit code."""
    try:
        sys.stdout.write(f"{cancel_all()}\n")
    except (LabError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
