"""`lab shell TASK`.

Examples:
    # where worker-0 runs
    lab shell worker-0
    # in an environment by its name
    lab shell ps-0 --name mnist
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

from lab.cli.arguments import Argument
from lab.cli.options import EnvironmentName
from lab.service.environments import check_tasks, find_environment


def command(
    *,
    task: Annotated[str, Argument("a task, such as worker-0")],
    name: EnvironmentName = None,
) -> None:
    """Become a shell in the task's place."""
    environment = find_environment(name)
    there = [each.task for each in environment.tasks()]
    check_tasks([task], there, f"environment {environment.project!r}")
    argv = environment.shell(task)
    sys.stdout.flush()
    # The arguments come from the backend as a list; no shell reads them. This process ends here.
    os.execvp(argv[0], argv)  # noqa: S606
