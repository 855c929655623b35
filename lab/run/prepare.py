"""Prepare a run: write its `run.json` and copy its programs before anything starts."""

from __future__ import annotations

import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from lab import __version__
from lab.errors import InputError
from lab.experiments.registry import Experiment, with_seed
from lab.placement.plan import Plan
from lab.program.own import OwnProgram
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo, TaskRow, parameters_of
from lab.store.status import RunStatus
from lab.volume import Request, RunSpec, new_run_id
from lab.volume.checkpoints import copy_checkpoints, global_end, has_checkpoint
from lab.volume.run_spec import registered
from lab.volume.states import State

_PACKAGES: Final = ("tensorflow", "tensorflow-cpu", "numpy", "docker", "pyroute2")
_GIT_TIMEOUT_S: Final = 10


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked request for a run.

    Attributes:
        spec: The specification of the run.
        plan: The placement.
        root: The project's directory.
        cluster_file: The config's file; None for a config in memory.
        program: The user's own program; None for an experiment of the registry.
        resumes: The run whose checkpoints it resumes from, or None.
        notices: The notices of the preparation.
    """

    spec: RunSpec
    plan: Plan
    root: Path
    cluster_file: Path | None
    program: OwnProgram | None = None
    resumes: RunDir | None = None
    notices: tuple[str, ...] = ()


def prepare(submission: Submission, store: Path) -> RunDir:
    """Create `runs/<id>/run.json`, before anything starts.

    Raises:
        LabError: `run.json` of the run that it resumes from cannot be read.
        OSError: The run's directory cannot be written; it is removed.
    """
    spec, plan = submission.spec, submission.plan
    if experiment := registered(spec):
        spec = replace(spec, args=with_seed(experiment, spec.args))
    old = submission.resumes.read() if submission.resumes else None
    if old is not None:
        spec = replace(spec, resumed_from=old.run_id)
    info = RunInfo(
        run_id=new_run_id(spec.experiment),
        spec=spec,
        project=plan.name,
        cluster=plan.cluster_spec(),
        cluster_file=str(submission.cluster_file or ""),
        cluster_sha256=plan.cluster_sha256,
        tasks=tuple(_task_rows(plan)),
        gpus=tuple(dict.fromkeys(gpu for task in plan.tasks for gpu in task.gpus)),
        plan=asdict(plan),
        git=git_state(submission.root),
        versions=versions(),
        epoch_workers=epoch_workers(old) if old else 0,
        notices=submission.notices,
        started_unix=time.time(),
        **parameters_of(spec),
    )
    run = RunDir(store / info.run_id)
    run.create(info)
    try:
        if submission.program is not None:
            submission.program.copy_to(run.program, run.files, run.original)
        if submission.resumes is not None:
            copy_checkpoints(submission.resumes.checkpoints, run.checkpoints)
    except BaseException:
        run.discard()
        raise
    return run


def prepare_continuation(old: RunDir, request: Request) -> RunDir:
    """Create `runs/<id>/run.json` for the run with which an interrupted run continues.

    Raises:
        LabError: `run.json` of the interrupted run cannot be read.
        OSError: The run's directory cannot be written.
    """
    before = old.read()
    info = replace(
        before,
        run_id=request.run_id,
        spec=request.spec,
        cluster=request.cluster,
        epoch_workers=epoch_workers(before),
        started_unix=request.submitted_unix,
        submitted_unix=request.submitted_unix,
        state=State.STARTING,
        reason="",
        stopped_unix=None,
        collected=False,
        left=(),
        **parameters_of(request.spec),
    )
    run = RunDir(old.path.parent / info.run_id)
    run.create(info)
    return run


def _task_rows(plan: Plan) -> Iterator[TaskRow]:
    for task in plan.tasks:
        yield {
            "task": task.name,
            "node": task.node,
            "address": f"{task.node}:{task.port}",
            "gpus": task.gpus,
        }


def check_resumable(
    run: RunDir, wanted: Experiment, data_dir: str | None, status: RunStatus
) -> RunInfo:
    """Check that a run can be resumed.

    Args:
        run: The run.
        wanted: The experiment to train.
        data_dir: The directory of the user's own data, or None.
        status: The status of the run.

    Raises:
        InputError: The run is of another experiment, used the user's own data and none is given,
            has not ended, is not completely collected, was imported, or has no checkpoint.
    """
    info = status.info
    if info.imported:
        raise InputError(
            f"run {run.run_id} was imported: it cannot be resumed", "resume a run of this host"
        )
    if info.spec.own or info.spec.experiment != wanted.name:
        raise InputError(
            f"run {run.run_id} is a run of {info.spec.experiment!r}, not of {wanted.name!r}",
            "resume it with its own experiment; a program of your own cannot be resumed",
        )
    if info.spec.data_dir and data_dir is None:
        raise InputError(
            f"run {run.run_id} was trained on your own data, {info.spec.data_dir}",
            "give the same data again with --data_dir",
        )
    if not status.state.ended:
        raise InputError(
            f"run {run.run_id} has not ended: it is {status.state.value}",
            status.note
            or f"end it with `lab cancel {run.run_id}`, and collect it with `lab collect`",
        )
    if status.note:
        raise InputError(
            f"run {run.run_id} is {status.state} and not completely collected", status.note
        )
    if not has_checkpoint(run.checkpoints):
        raise InputError(
            f"run {run.run_id} left no checkpoint in {run.checkpoints}",
            "start a new run; --checkpoint_every 10 saves a checkpoint every 10 seconds",
        )
    return info


def resumed_end(
    info: RunInfo, parameters: Mapping[str, Any], training_images: Callable[[], int]
) -> Sequence[str]:
    """Return the arguments that end a program at the same step as the run that it resumes from.

    Args:
        info: The run that it resumes from.
        parameters: The program's current flags, by name.
        training_images: Returns the number of training images.
    """
    return global_end(parameters, epoch_workers(info), training_images)


def epoch_workers(info: RunInfo) -> int:
    """Return the number of workers whose epochs determine the end of a run, and of resumed runs."""
    return info.epoch_workers or len(info.cluster.get("worker", ()))


def inherited_args(info: RunInfo, own: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the arguments of a run for a run that resumes from it.

    `--global_steps` is left out if the user gives the epochs or the batch size anew.

    Args:
        info: The run.
        own: The program's flags that the user gives now, by name.
    """
    args = info.spec.args
    if not own.keys() & {"epochs", "batch_size"}:
        return args
    return tuple(argument for argument in args if not argument.startswith("--global_steps="))


def versions() -> dict[str, str]:
    """Return the versions of lab, Python and the libraries of the client."""
    found = {"lab": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_state(root: Path) -> dict[str, Any] | None:
    """Return the commit of a directory, and whether files were changed.

    None outside a repository or without git.
    """
    commit = _git(root, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": changes is None or bool(changes)}


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_GIT_TIMEOUT_S
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
