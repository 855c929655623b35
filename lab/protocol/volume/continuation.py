"""A run whose agents were stopped or lost continues as a new run, from its last checkpoint.

A run that the user resumes begins with copies of the same files.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lab.protocol.experiments.experiment import OnFailure, with_defaults
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume.control import read_fault, requests
from lab.protocol.volume.layout import Volume
from lab.protocol.volume.run_spec import Request, RunSpec, registered
from lab.protocol.volume.states import Cause, State, TaskStatus, outcome
from lab.protocol.volume.status import read_statuses, write_lost

CHECKPOINT: Final = re.compile(r"model-[0-9]+\.(index|data-[0-9]{5}-of-[0-9]{5})|checkpoint")
"""The files of the programs' checkpoints."""


def has_checkpoint(folder: Path) -> bool:
    """Whether a directory contains a checkpoint from which a run can resume."""
    return any(folder.glob("model-*.index"))


def next_step(request: Request, statuses: Mapping[str, TaskStatus]) -> str:
    """Return how to continue a run that ended early; it becomes a part of the reason of its end.

    Only experiments with the flag `checkpoint_dir` save checkpoints, after their first step.
    """
    experiment = registered(request.spec)
    saves = experiment is not None and "checkpoint_dir" in experiment.flags
    has_stepped = any(status.global_step for status in statuses.values())
    if saves and (has_stepped or request.spec.resumed_from):
        return f"continue with --resume {request.run_id}"
    return "start it again"


def copy_checkpoints(source: Path, target: Path) -> None:
    """Copy the checkpoints of one directory into a new directory.

    Raises:
        OSError: A file cannot be read or written.
    """
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if CHECKPOINT.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            shutil.copyfile(path, target / path.name)


def global_end(parameters: Mapping[str, Any], workers: int, data: Path | None) -> tuple[str, ...]:
    """Return the flag that ends a resumed run at the planned last step of the earlier run.

    It is valid only for experiments in which each local step is an update. In these the global step
    is the sum of the workers' local steps, for any number of workers.

    Args:
        parameters: The program's flags by name.
        workers: The number of workers in the earlier run.
        data: The user's own data; None: the shipped data.

    Returns:
        `--global_steps=N`; empty if the flags already have it, or if the program has no epochs.

    Raises:
        DataError: The data cannot be read.
    """
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if parameters.get("global_steps") or not isinstance(epochs, int):
        return ()
    if not isinstance(batch_size, int):
        return ()  # the program refuses it
    return (f"--global_steps={epochs * (training_images(data) // batch_size) * workers}",)


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
    state, _ = outcome(request.spec, statuses)
    stopped = any(status.cause is Cause.INTERRUPTED for status in statuses.values())
    return state in {State.CANCELLED, State.LOST} or (state is State.FAILED and stopped)


def has_lost_task(volume: Volume, request: Request) -> bool:
    """Whether the agent of a task was lost, as when its node fails."""
    return any(status.state is State.LOST for status in read_statuses(volume, request).values())


def continues(volume: Volume, request: Request) -> bool:
    """Whether an ended run continues when its agents start again.

    A run whose agents were stopped does. If an agent was lost, the policy of the run decides. The
    user's own program never does: `lab` does not know its checkpoints.
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
        parameters = with_defaults(experiment, args)
        workers = len(last.cluster.get("worker", ()))
        data = Path(last.spec.data_dir) if last.spec.data_dir else None
        args += global_end(parameters, workers, data)
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


def training_images(data: Path | None) -> int:
    """Return the number of training images of the user's own data; None: of the shipped data.

    Raises:
        DataError: The data cannot be read.
    """
    from lab.protocol.mnist import load_mnist  # noqa: PLC0415  (NumPy, for a resumed run alone)

    return len(load_mnist(data).train)
