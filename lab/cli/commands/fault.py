"""`lab fault FAULT TARGET`.

kill                  end the program of a task, as a crash does (SIGKILL)
stop                  ask the program to end (SIGTERM)
pause:10s             suspend it for this time
slow:0.3,30s          let it run for 30 % of the time, for 30 s
cut:5s                disconnect a node from the network for this time
link:rate=10mbit,delay=20ms,30s
                      slow and delay what a node sends, for this time
TARGET is a task, or a node (all of its tasks). `lab run --fault` takes the same
faults, separated by semicolons.

Examples:
    # in the newest run, now
    lab fault kill worker-1
    # at global step 500
    lab fault pause:10s worker-1 after 500 steps
"""

from __future__ import annotations

import time
from typing import Annotated

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.console import print_json
from lab.errors import InputError
from lab.experiments.faults import Fault, concerns, parse, relative_to_now
from lab.log import LOG
from lab.options import Argument, Flag, Switch
from lab.options.shared import RunsDir
from lab.project import default_name
from lab.run.discovery import find, reachable
from lab.run.fault_injection import check_targets, inject, input_error
from lab.run.lifecycle import statuses_of
from lab.store.directory import LAST, runs_path


def command(
    *,
    fault: Annotated[str, Argument("kill, stop, pause:10s, slow:0.3, link:rate=10mbit or cut:5s")],
    task: Annotated[str, Argument("a task or a node", shows="TARGET")] = "",
    when: Annotated[str, Argument("`after MOMENT` delays the fault", shows="after")] = "",
    moment: Annotated[str, Argument("seconds from now (5s), or a number of global steps")] = "",
    unit: Annotated[
        str, Argument("follows a number of steps: `after 500 steps`", shows="steps")
    ] = "",
    run: Annotated[str, Flag("a run's id, or a unique prefix of it", shows="RUN")] = LAST,
    json: Annotated[bool, Switch("print the fault as JSON")] = False,
    runs_dir: RunsDir = None,
) -> None:
    """Inject a fault into a run that is in progress."""
    requested = _read(" ".join(filter(None, (fault, task, when, moment, unit))))
    default = default_name()
    found = find(run, runs_path(runs_dir), reachable(backends(), default), default)
    run_id = found.run.run_id
    if found.environment is None or found.request is None:
        raise InputError(f"run {run_id} is not under way", f"see it with `lab show {run_id}`")
    node_of = {each.task: each.node for each in found.environment.tasks()}
    (text,) = check_targets([requested], node_of, found.request.spec.stall_s)
    # Seconds count from now here. In `lab run --fault`, and for agents, they count from the run's
    # start.
    now = time.time() + found.environment.clock_offset_s()
    wanted = relative_to_now(parse(text), max(0.0, now - found.request.submitted_unix))
    tasks = [name for name, node in node_of.items() if concerns(wanted, name, node)]
    _check_running(wanted, tasks, found.environment, run_id)
    inject(found.environment, run_id, wanted)
    if json:
        print_json({"run": run_id, "fault": wanted.text, "tasks": tasks})
    else:
        LOG.info(f"run {run_id}: {wanted.text}: affects {', '.join(tasks)}")


def _read(text: str) -> Fault:
    try:
        fault = parse(text)
    except ValueError as error:
        raise input_error(error) from error
    if fault.kind.on_network and fault.when is not None:
        raise InputError(
            f"`lab fault` injects {fault.kind} at once, but {text!r} has a time",
            "leave the time out, or use `lab run --fault`",
        )
    return fault


def _check_running(fault: Fault, tasks: list[str], environment: Environment, run_id: str) -> None:
    statuses = statuses_of(environment, run_id)
    ended = {task for task, status in statuses.items() if status.state.ended}
    if ended >= statuses.keys():
        raise InputError(f"run {run_id} has ended", f"see it with `lab show {run_id}`")
    if ended >= set(tasks) and not fault.kind.on_network:
        raise InputError(
            f"{fault.target} has ended in run {run_id}",
            f"see it with `lab ps {environment.project}`",
        )
