"""`lab up`.

Examples:
    # in containers if an engine runs, else as processes
    lab up
    # as processes, without GPUs
    lab up --backend local --cluster clusters/book.yaml --gpus none
"""

from __future__ import annotations

from collections.abc import Callable

from lab.api.environments import Booted, up
from lab.base.options import presents
from lab.formatting import counted
from lab.log import LOG


@presents(up)
def command(booted: Callable[[], Booted]) -> None:
    """Boot the environment of a config, unless it exists."""
    made = booted()
    name = made.environment.project
    if not made.is_new:
        LOG.info(f"environment {name!r} is up already; train with `lab run async`")
        return
    tasks = counted(len(made.environment.tasks()), "task")
    LOG.info(
        f"environment {name!r} is up with {tasks};"
        " train with `lab run async`, remove it with `lab down`"
    )
