"""Whether every agent is there to hear of a request, asked before one is written."""

from __future__ import annotations

from collections.abc import Sequence

from lab.backends import TaskInfo
from lab.errors import LabError


def check_hearing(project: str, tasks: Sequence[TaskInfo]) -> None:
    """See that all tasks of an environment are up.

    The others would take the request up, and wait for the one that is missing until they time out.

    Raises:
        LabError: One is not.
    """
    down = [task for task in tasks if not task.alive]
    if down:
        raise LabError(
            f"{down[0].task} of environment {project} is not up: {down[0].detail}",
            f"see `lab ps`, then `lab down` and `lab up` ({len(down)} tasks are down)"
            if len(down) > 1
            else "see `lab ps` and `lab logs`, then `lab down` and `lab up`",
        )
