"""`lab fault FAULT TARGET`."""

from __future__ import annotations

import time
from typing import Annotated

from lab.backends import Environment
from lab.backends.choose import backends
from lab.cli.arguments import Flag, Switch, Word
from lab.cli.options import RunsDir
from lab.console import print_json, say
from lab.errors import InputError
from lab.run.faulting import do, settle, wrong
from lab.run.project import default_name
from lab.run.store import LAST, runs_dir
from lab.run.whereabouts import find, reachable, statuses_of
from lab.task.faults import Fault, hits, later, parse


def command(
    *,
    fault: Annotated[str, Word("kill, stop, pause:10s, slow:0.3, link:rate=10mbit or cut:5s")],
    task: Annotated[str, Word("a task, a node, or random", shows="TARGET")] = "",
    when: Annotated[str, Word("nothing: at once; else the word after", shows="after")] = "",
    moment: Annotated[str, Word("5s, from now on, or a number of global steps")] = "",
    unit: Annotated[str, Word("the word steps, behind a number of steps", shows="steps")] = "",
    run: Annotated[str, Flag("a run's id, or a unique beginning of it", shows="RUN")] = LAST,
    json: Annotated[bool, Switch("print what was done, for a program")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Do a fault to a run that is under way."""
    asked = _read(" ".join(filter(None, (fault, task, when, moment, unit))))
    here = default_name()
    found = find(run, runs_dir(runs_dir_), reachable(backends(), here), here)
    run_id = found.run.run_id
    if found.environment is None or found.request is None:
        raise InputError(f"run {run_id} is not under way", f"see it with `lab show {run_id}`")
    places = {each.task: each.node for each in found.environment.tasks()}
    (text,) = settle([asked], places, found.request.spec.stall_s, say)
    # Seconds count from now; those of `lab run --fault`, and of agents, from the run's begin.
    wanted = later(parse(text), max(0.0, time.time() - found.request.submitted_unix))
    tasks = [name for name, node in places.items() if hits(wanted, name, node)]
    _see_that_they_run(wanted, tasks, found.environment, run_id)
    do(found.environment, run_id, wanted)
    if json:
        print_json({"run": run_id, "fault": wanted.text, "tasks": tasks})
    else:
        say(f"run {run_id}: {wanted.text}: it hits {', '.join(tasks)}")


def _read(text: str) -> Fault:
    try:
        fault = parse(text)
    except ValueError as error:
        raise wrong(error) from error
    if fault.kind.on_network and (fault.when is not None or fault.between is not None):
        raise InputError(
            f"`lab fault` does {fault.kind} at once, and {text!r} says when",
            "leave that out, or give it to `lab run --fault`",
        )
    return fault


def _see_that_they_run(
    fault: Fault, tasks: list[str], environment: Environment, run_id: str
) -> None:
    statuses = statuses_of(environment, run_id)
    ended = {task for task, status in statuses.items() if status.state.ended}
    if ended >= statuses.keys():
        raise InputError(f"run {run_id} has ended", f"see it with `lab show {run_id}`")
    if ended >= set(tasks) and not fault.kind.on_network:
        raise InputError(
            f"{fault.target} has ended in run {run_id}",
            f"see it with `lab ps {environment.project}`",
        )
