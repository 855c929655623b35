"""`lab logs`."""

from __future__ import annotations

from typing import Annotated

from lab.backends import Environment
from lab.backends.choose import backends, named
from lab.cli.arguments import Flag, Switch
from lab.cli.options import EnvironmentName
from lab.cli.times import moment
from lab.cli.values import count
from lab.errors import InputError
from lab.run.project import default_name
from lab.task.text import visible


def command(
    *,
    task: Annotated[
        str | None, Flag("one task, or several with commas (default: all)", shows="TASK")
    ] = None,
    follow: Annotated[bool, Switch("go on until Ctrl-C", short="-f")] = False,
    tail: Annotated[
        int | None, Flag("only so many last lines of each task", count, shows="N", short="-n")
    ] = None,
    since: Annotated[
        float | None,
        Flag("only what was said since then: 10m, 1h30m, 14:05, 2026-11-21T14:05", moment),
    ] = None,
    name: EnvironmentName = None,
) -> None:
    """Print what the tasks of an environment print."""
    environment = named(name, default_name(), backends())
    for line in environment.logs(_tasks(task, environment), follow=follow, tail=tail, since=since):
        print(visible(line.rstrip("\r\n")), flush=follow)


def _tasks(given: str | None, environment: Environment) -> list[str]:
    there = [task.task for task in environment.tasks()]
    wanted = there if given is None else [word.strip() for word in given.split(",")]
    for task in wanted:
        if task not in there:
            raise InputError(
                f"environment {environment.project!r} has no task {task!r}",
                f"its tasks are {', '.join(there)}",
            )
    return wanted
