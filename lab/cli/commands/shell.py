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

from lab.backends.choose import backends, named
from lab.cli.arguments import Word
from lab.cli.options import EnvironmentName
from lab.errors import InputError
from lab.run.project import default_name


def command(
    *,
    task: Annotated[str, Word("a task, such as worker-0")],
    name: EnvironmentName = None,
) -> None:
    """Become a shell in the task's place."""
    environment = named(name, default_name(), backends())
    there = [each.task for each in environment.tasks()]
    if task not in there:
        raise InputError(
            f"environment {environment.project!r} has no task {task!r}",
            f"its tasks are {', '.join(there)}",
        )
    argv = environment.shell(task)
    sys.stdout.flush()
    # The arguments come from the backend as a list; no shell reads them. This process ends here.
    os.execvp(argv[0], argv)  # noqa: S606
