"""A run whose agents were stopped or lost continues as a new run, from its last checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lab.experiments.policy import OnFailure
from lab.experiments.registry import EXPERIMENTS, defaults, hyperparameters
from lab.volume.checkpoints import copy_checkpoints, global_end, has_checkpoint
from lab.volume.control import read_fault, requests
from lab.volume.layout import Volume
from lab.volume.outcome import outcome
from lab.volume.request import Request
from lab.volume.run_spec import RunSpec
from lab.volume.states import Cause, State
from lab.volume.statuses import read_statuses, write_lost


def mark_lost(volume: Volume, reason: str) -> None:
    """Mark the tasks whose agents have ended without writing the end of their task.

    Args:
        volume: The run volume; none of its agents runs.
        reason: Why none runs.

    Raises:
        OSError: The volume cannot be read or written.
    """
    for request in requests(volume):
        for task, status in read_statuses(volume, request).items():
            if not status.state.ended:
                write_lost(volume.status(request.run_id, task), status, reason)


def is_interrupted(volume: Volume, request: Request) -> bool:
    """Whether the agents of an ended run were stopped or lost, and no user has cancelled it.

    A program may fail because the agent of another task is stopped before its own.
    """
    if volume.cancel(request.run_id).exists() or volume.kill(request.run_id).exists():
        return False
    statuses = read_statuses(volume, request)
    state, _ = outcome(request, statuses)
    stopped = any(each.cause is Cause.INTERRUPTED for each in statuses.values())
    return state in {State.CANCELLED, State.LOST} or (state is State.FAILED and stopped)


def has_lost_task(volume: Volume, request: Request) -> bool:
    """Whether the agent of a task was lost, as when its node fails."""
    return any(each.state is State.LOST for each in read_statuses(volume, request).values())


def continues(volume: Volume, request: Request) -> bool:
    """Whether an ended run continues when its agents start again.

    A run whose agents were stopped does. If an agent was lost, the policy of the run decides. A
    program of the user has no checkpoints that `lab` knows.
    """
    spec = request.spec
    if spec.own or not is_interrupted(volume, request):
        return False
    return spec.on_failure is not OnFailure.FAIL or not has_lost_task(volume, request)


def next_request(
    volume: Volume, last: Request, request: Request, notify: Callable[[str], None]
) -> Request:
    """Return the request that resumes an interrupted run, and upload its checkpoint.

    Args:
        volume: The run volume.
        last: The interrupted run.
        request: The new run, as it starts without a checkpoint.
        notify: Receives one line.

    Raises:
        OSError: The volume cannot be used.
    """
    source = volume.run(last.run_id) / "checkpoints"
    if not has_checkpoint(source):
        notify(f"run {last.run_id} was interrupted and left no checkpoint: it starts over")
        return request
    experiment = EXPERIMENTS[last.spec.experiment]
    args = last.spec.args
    if experiment.steps_add_up:
        parameters = defaults(experiment) | hyperparameters(experiment, args)
        workers = len(last.cluster.get("worker", ()))
        args += global_end(parameters, workers, lambda: _training_images(last.spec.data_dir))
    incoming = volume.incoming(request.run_id)
    shutil.rmtree(incoming, ignore_errors=True)
    copy_checkpoints(source, incoming / "checkpoints")
    notify(f"run {last.run_id} was interrupted: {request.run_id} resumes from its checkpoint")
    spec = replace(request.spec, args=args, resumed_from=last.run_id)
    return replace(request, spec=spec)


def continued_spec(volume: Volume, last: Request) -> RunSpec:
    """Return the specification of the run that continues a run.

    Its faults are those that were not injected yet. A lost task uses up one of its restarts.
    """
    spec = last.spec
    injected = {read_fault(path).text for path in volume.faults(last.run_id).glob("*/*.json")}
    spec = replace(spec, faults=tuple(text for text in spec.faults if text not in injected))
    if spec.on_failure is not OnFailure.RESTART or not has_lost_task(volume, last):
        return spec
    left = spec.restarts - 1
    return replace(spec, restarts=left, on_failure=spec.on_failure if left else OnFailure.FAIL)


def _training_images(data_dir: str) -> int:
    from lab.mnist import load_mnist  # noqa: PLC0415  (NumPy, for a resumed run alone)

    return len(load_mnist(Path(data_dir) if data_dir else None).train)
