"""`lab fault FAULT TARGET`.

kill                  kill the program of a task, like a crash (SIGKILL)
stop                  ask the program to end (SIGTERM)
pause:10s             suspend it for this time
slow:0.3,30s          let it run only 30 % of the time, for 30 s
cut:5s                disconnect a node from the network for this time
link:rate=10mbit,delay=20ms,30s
                      slow and delay what a node sends, for this time
TARGET is a task or a node (all its tasks). `lab run --fault` takes faults joined by semicolons.

Examples:
    # in the newest run, immediately
    lab fault kill worker-1
    # at global step 500
    lab fault pause:10s worker-1 after 500 steps
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.base.errors import InputError
from lab.base.options import Argument, Flag, verb
from lab.protocol.experiments.faults import Fault, concerns, parse, relative_to_now
from lab.runner.discovery import find, name_here, reachable
from lab.runner.fault_injection import check_targets, inject, input_error
from lab.runner.lifecycle import statuses_of
from lab.runner.store.directory import LAST, runs_path
from lab.verbs.common_options import RunsDir
from lab.verbs.printing import Note, Shown, prints


@dataclass(frozen=True, slots=True, repr=False)
class Injected(Shown):
    """A fault that was injected.

    Attributes:
        run: The id of the run.
        fault: The fault.
        tasks: The tasks that it affects.
    """

    run: str
    fault: str
    tasks: Sequence[str]

    def _shown(self) -> Iterator[Note]:
        yield Note(f"run {self.run}: {self.fault}: affects {', '.join(self.tasks)}")


@verb
def fault(
    fault: Annotated[str, Argument("kill, stop, pause:10s, slow:0.3, link:rate=10mbit or cut:5s")],
    task: Annotated[str, Argument("a task or a node", shows="TARGET")] = "",
    when: Annotated[str, Argument("`after MOMENT` delays the fault", shows="after")] = "",
    moment: Annotated[str, Argument("seconds from now (5s), or a number of global steps")] = "",
    unit: Annotated[
        str, Argument("follows a number of global steps: `after 500 steps`", shows="steps")
    ] = "",
    *,
    run: Annotated[str, Flag("a run's id, or a unique prefix of it", shows="RUN")] = LAST,
    runs_dir: RunsDir = None,
) -> Injected:
    """Inject a fault into a run that is in progress: `lab.fault("kill worker-1")`.

    Raises:
        InputError: The fault is invalid, or the run or the task has ended.
        LabError: The run volume cannot be written.
    """
    requested = _read(" ".join(filter(None, (fault, task, when, moment, unit))))
    here = name_here()
    found = find(run, runs_path(runs_dir), reachable(backends(), here), here)
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
    return Injected(run_id, wanted.text, tasks)


def _read(text: str) -> Fault:
    try:
        fault = parse(text)
    except ValueError as error:
        raise input_error(error) from error
    if fault.kind.on_network and fault.when is not None:
        raise InputError(
            f"`lab fault` injects {fault.kind} immediately, but {text!r} has a time",
            "leave out the time, or use `lab run --fault`",
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


command = prints(fault)
