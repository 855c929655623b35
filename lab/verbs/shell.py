"""`lab shell TASK`.

Examples:
    # in the container or node of worker-0
    lab shell worker-0
    # in another environment
    lab shell ps-0 --name mnist
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

from lab.base.options import Argument, verb
from lab.verbs.common_options import EnvironmentName
from lab.verbs.inputs import find_environment


@verb
def shell(
    task: Annotated[str, Argument("a task, such as worker-0")],
    *,
    name: EnvironmentName = None,
) -> None:
    """Replace this process by a shell in the container or node of a task.

    It returns nothing: the shell has the terminal from now on, and its exit status is that of this
    process.
    """
    argv = find_environment(name).shell(task)
    sys.stdout.flush()
    # The arguments are a list from the backend; no shell parses them.
    os.execvp(argv[0], argv)  # noqa: S606


command = shell
