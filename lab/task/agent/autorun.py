"""The run that `docker compose up` starts: `python -m lab.task.agent.autorun`.

This is a separate compose service, which starts when all tasks are healthy. The services of the
tasks do not have its variables, so compose never recreates a task because of them::

    LAB_RUN         the experiment and its flags, as in a shell: async --epochs=5; empty: no run;
                    also --stall=TIME, as for `lab run`
    LAB_RUN_TERMS   `start`, `faults` and `env` of the config, as JSON
    LAB_ONCE        1: end with the run

LAB_RUN and LAB_RUN_TERMS identify a run. The service trains it once. After a reboot it resumes an
interrupted run, or prints the result of an ended one. The service runs until it is stopped, because
`docker compose up --wait` fails when a container exits. With LAB_ONCE, as in a batch job, it ends
with the run; its exit code is 0 if the run succeeded. `docker compose up --exit-code-from run` then
ends the agents, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from lab.base import variables as var
from lab.base.text import LONGEST_REASON, short, suggestion
from lab.base.units import duration_s
from lab.protocol.experiments.experiment import misfit, with_seed
from lab.protocol.experiments.faults import check_target, parse
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.records import Record
from lab.protocol.records.echo import readable
from lab.protocol.records.reader import is_number, read_records, unexpected
from lab.protocol.volume import Request, RunSpec, TaskStatus, Volume
from lab.protocol.volume.continuation import is_interrupted, next_request
from lab.protocol.volume.control import VolumeBusy, requests, state_of, submit, uploads
from lab.protocol.volume.layout import STALL_S, ClusterSpec, new_run_id, task_names
from lab.protocol.volume.states import NEVER_TALKED, State, outcome
from lab.protocol.volume.status import Statuses, read_statuses

_POLL_S: Final = 0.5
_EXIT_USAGE: Final = 2
_STALL: Final = "--stall="
_FIGURES: Final = frozenset({"local_step", "global_step", "loss", "accuracy"})


class AutorunError(ValueError):
    """The run cannot be started; the message contains the reason and a hint."""


def requested(environ: Mapping[str, str]) -> Request | None:
    """Read the variables; return the request, with a run id and a seed, or None without a run.

    It prints a line for each network fault, which it leaves out: they need a client.

    Raises:
        AutorunError: A variable is invalid, or does not fit the cluster.
    """
    text = environ.get(var.LAB_RUN, "").strip()
    if not text:
        if _once(environ):
            raise AutorunError("LAB_ONCE needs a run; name one, such as LAB_RUN=async")
        return None
    cluster = _json(environ, var.LAB_CLUSTER)
    hosts = [host.rpartition(":")[0] for host in chain.from_iterable(cluster.values())]
    nodes = dict(zip(task_names(cluster), hosts, strict=True))
    options = _json(environ, var.LAB_RUN_TERMS)
    start, faults = options.get("start", {}), options.get("faults", [])
    env = options.get("env", {})
    try:
        argv = shlex.split(text)
    except ValueError as error:
        raise AutorunError(f"LAB_RUN: {error}; write it as in a shell") from error
    request = _request(argv, cluster, environ.get(var.LAB_RUNTIME, ""))
    experiment = EXPERIMENTS[request.spec.experiment]
    try:
        wanted = [check_target(parse(text), nodes) for text in (*experiment.faults, *faults)]
    except ValueError as error:
        raise AutorunError(f"LAB_RUN_TERMS: {error}") from error
    digest = hashlib.sha256(json.dumps([argv, start, faults, env]).encode()).hexdigest()
    spec = replace(
        request.spec,
        args=with_seed(experiment, request.spec.args),
        start=start,
        env=env,
        faults=tuple(fault.text for fault in wanted if not fault.kind.on_network),
    )
    for fault in (each for each in wanted if each.kind.on_network):
        _print(f"skipped {fault.text}: a network fault needs `lab run`")
    return replace(request, spec=spec, autorun=digest)


def _once(environ: Mapping[str, str]) -> bool:
    """Whether the service ends with the run."""
    return environ.get(var.LAB_ONCE, "") not in {"", "0"}


def _json(environ: Mapping[str, str], name: str) -> dict[str, Any]:
    """The JSON object in a variable."""
    try:
        value = json.loads(environ.get(name, ""))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise AutorunError(f"{name} is not a JSON object; render the config again")
    return value


def _request(arguments: Sequence[str], cluster: ClusterSpec, runtime: str) -> Request:
    """Return the request for the experiment in LAB_RUN.

    Args:
        arguments: The experiment's name and its flags.
        cluster: TensorFlow's cluster spec of the environment.
        runtime: The environment's runtime, or "" if unknown.

    Raises:
        AutorunError: The experiment is unknown, or does not fit the cluster or the runtime, or the
            time limit is not a duration.
    """
    name, *options = arguments
    flags = [option for option in options if not option.startswith(_STALL)]
    times = [option.removeprefix(_STALL) for option in options if option not in flags]
    stall_s = duration_s(times[-1]) if times else STALL_S
    if stall_s is None:
        raise AutorunError(f"LAB_RUN: {_STALL}{times[-1]} is not a duration such as {_STALL}10m")
    experiment = EXPERIMENTS.get(name)
    if experiment is None:
        hint = suggestion(name, EXPERIMENTS).strip() or f"there are {', '.join(EXPERIMENTS)}"
        raise AutorunError(f"LAB_RUN: no experiment {name!r}; {hint}")
    if why := misfit(experiment, {job: len(hosts) for job, hosts in cluster.items()}):
        raise AutorunError(f"LAB_RUN: {name} {why}; change `jobs:` in the config")
    if runtime and runtime != experiment.runtime:
        raise AutorunError(
            f"LAB_RUN: {name} needs {experiment.runtime}, but the"
            f" environment has {runtime}; render with --framework {experiment.runtime}"
        )
    return Request(
        run_id=new_run_id(name),
        spec=RunSpec(name, args=tuple(flags), stall_s=stall_s).completed(experiment),
        cluster=cluster,
    )


def train(request: Request, volume: Volume) -> Request:
    """Train the requested run, unless it has ended already, and follow it to its end.

    Returns:
        The newest request of this run, which has ended.

    Raises:
        OSError: The volume cannot be used.
    """
    same = [each for each in requests(volume) if each.autorun == request.autorun]
    last = same[-1] if same else None
    if last is not None and not state_of(volume, last).ended:
        _print(f"run {last.run_id} is under way")
        _follow(volume, last)
        if not is_interrupted(volume, last):
            return last
    if last is not None and not is_interrupted(volume, last):
        _print(f"run {last.run_id} has ended already; it is not trained again")
        return last
    with uploads(volume, request.run_id):
        if last is not None:
            request = next_request(volume, last, request, _print)
        _submit(volume, request)
    _print(f"run {request.run_id}: {shlex.join((request.spec.experiment, *request.spec.args))}")
    _follow(volume, request)
    return request


def _submit(volume: Volume, request: Request) -> None:
    """Submit the request as soon as no other run is active."""
    shown = ""
    while True:
        try:
            submit(volume, request)
        except VolumeBusy as busy:
            if busy.run_id != shown:
                experiment = request.spec.experiment
                _print(f"run {busy.run_id} is under way; {experiment} starts after it")
            shown = busy.run_id
            time.sleep(_POLL_S)
        else:
            return


def _follow(volume: Volume, request: Request) -> None:
    statuses = Statuses(volume, request.run_id, request.tasks())
    while not all(status.state.ended for status in statuses.refresh().values()):
        time.sleep(_POLL_S)


def report(volume: Volume, request: Request) -> tuple[State, list[str]]:
    """How a run has ended, and the lines to print: of its tasks, and the result.

    A run whose tasks have succeeded has failed if its results are not as expected.

    Raises:
        OSError: Its statuses or records cannot be read.
    """
    statuses = read_statuses(volume, request)
    records = [volume.records(request.run_id, task) for task in statuses]
    state, failed = outcome(request.spec, statuses)
    why = [f"{task}: {short(statuses[task].reason, LONGEST_REASON)}" for task in failed[:1]]
    if state is State.FAILED and not failed:
        why = [NEVER_TALKED]
    if state is State.SUCCEEDED:
        missed = unexpected(records, EXPERIMENTS[request.spec.experiment].results)
        why = [f"not as expected: {short(name)}" for name in missed]
        state = State.FAILED if why else state
    lines = [_line(status, path) for status, path in zip(statuses.values(), records, strict=True)]
    return state, [*lines, *why, f"run {request.run_id}: {state}"]


def _line(status: TaskStatus, records: Path) -> str:
    newest: Record = {"kind": "step"}
    for record in read_records(records):
        newest |= {name: record[name] for name in _FIGURES if is_number(record.get(name))}
    figures = readable(newest)
    return f"{status.task}: {status.state}{', ' * bool(figures)}{figures}"


def main() -> int:
    """Train the run of the variables; return the exit code.

    Without LAB_ONCE it then waits for a stop signal.
    """
    once = _once(os.environ)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(int(once)))
    volume = Volume(Path(os.environ[var.LAB_RUNS]))
    try:
        request = requested(os.environ)
        if request is not None:
            request = train(request, volume)
            state, lines = report(volume, request)
            for line in lines:
                _print(line)
            if once:
                _print(f"its files are on the run volume, in {volume.run(request.run_id)}")
                return int(state is not State.SUCCEEDED)
            _print(f"collect it:   python -m lab attach {request.run_id}")
            _print(f"train again:  python -m lab run {request.spec.experiment}")
            _print("the environment is waiting for more runs; stop it with Ctrl-C")
    except AutorunError as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    except OSError as error:
        sys.stderr.write(f"error: the run volume {volume.root} cannot be used: {error}\n")
        return 1
    while True:
        signal.pause()


def _print(line: str) -> None:
    print(f"lab: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
