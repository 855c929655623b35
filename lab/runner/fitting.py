"""Whether an experiment fits a config, has its program, and makes the steps of its run.

Workers may wait for steps, and a resumed run makes those that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from lab.base.errors import InputError
from lab.base.shipped import SHIPPED
from lab.cluster.config import load_cluster, validation
from lab.cluster.placement.plan import Plan
from lab.cluster.project import DEFAULT_CLUSTER, SCRIPTS, Project
from lab.programs.python_source import Sources
from lab.protocol.experiments.experiment import Experiment, hyperparameters, misfit, with_defaults
from lab.protocol.experiments.faults import parse_trigger
from lab.protocol.frameworks import FRAMEWORKS
from lab.protocol.volume import RunSpec
from lab.protocol.volume.continuation import global_end, has_checkpoint, training_images
from lab.protocol.volume.run_spec import PLACEHOLDER
from lab.runner.store.directory import RunDir, RunStatus
from lab.runner.store.run_info import RunInfo


def check_texts(spec: RunSpec, tasks: Sequence[str]) -> None:
    """Check the placeholders of a program's arguments and variables, and these variables' names.

    Raises:
        InputError: The run has no such task, job or rank, or `lab` itself sets a variable.
    """
    for job, env in spec.env.items():
        own = next(filter(FRAMEWORKS[spec.framework].sets, env), None)
        if own is not None:
            label = f"jobs.{job}.env" if job else "--env"
            raise InputError(f"{label}: lab itself sets {own}", "use another variable")
    texts = chain(spec.args if spec.own else (), *(env.values() for env in spec.env.values()))
    known = {*tasks, *(task.rpartition("-")[0] for task in tasks), "job", "index"}
    known |= {"rank", "local_rank", "size"} if spec.has_ranks else set()
    for match in chain.from_iterable(map(PLACEHOLDER.finditer, texts)):
        name = match[1] or match[2] or match[3]
        if name not in known:
            fix = "use {index}" if match[1] else f"its tasks are {', '.join(tasks)}"
            raise InputError(f"{match[0]}: the run has no {name}", fix)


def check_jobs(wanted: Experiment, project: Project) -> None:
    """Check that the cluster has exactly the jobs that the experiment needs.

    Raises:
        InputError: A job is missing, unused, or has the wrong number of tasks. The hint names a
            config that fits, if there is one.
    """
    if why := misfit(wanted, project.cluster.task_counts):
        raise InputError(
            f"{project.config_name}: experiment {wanted.name!r} {why}",
            try_config(wanted, project.root) or "change its `jobs:`",
        )


def check_runtime(wanted: Experiment, runtime: str | None) -> None:
    """Check that the user asks for no other runtime than that of the experiment.

    Raises:
        InputError: It is another one.
    """
    if runtime not in {None, wanted.runtime}:
        problem = f"experiment {wanted.name!r} needs {wanted.runtime}"
        raise InputError(problem, "leave out --framework")


def check_program(wanted: Experiment, root: Path) -> None:
    """Check the experiment's program before anything starts.

    Raises:
        InputError: The program is missing or unreadable; or the program, or a module of its
            directory that it imports, has a syntax error.
    """
    path = root / SCRIPTS / wanted.program
    if not path.exists():
        raise InputError(
            f"the program of experiment {wanted.name!r}, {path}, is missing", "restore the file"
        )
    sources = Sources()
    sources.read(path.parent, Path(path.name))
    sources.refuse_python_2()


def try_config(wanted: Experiment, root: Path) -> str:
    """Return the hint that names a config with an experiment's jobs; "" if there is none."""
    # In another directory, the name of the shipped default config is that of the user's own.
    own, shipped = _configs(wanted, root), _configs(wanted, SHIPPED)
    known = [*own, *(path for path in shipped if path.name != DEFAULT_CLUSTER)]
    fitting = next((path for path in known if _fits(path, wanted)), None)
    return f"try --cluster {_relative(fitting)}" if fitting else ""


def _configs(wanted: Experiment, folder: Path) -> Sequence[Path]:
    first = [folder / wanted.cluster] if wanted.cluster else []
    return [*first, folder / DEFAULT_CLUSTER, *sorted((folder / "clusters").glob("*.yaml"))]


def _fits(path: Path, wanted: Experiment) -> bool:
    try:
        return not misfit(wanted, load_cluster(path).task_counts)
    except (InputError, OSError):
        return False


def _relative(path: Path) -> str:
    """Return a path as `--cluster` takes it here; a shipped config is found by its name, too."""
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    name = path.relative_to(SHIPPED) if path.is_relative_to(SHIPPED) else path
    return str(path if name.exists() else name)


def check_joins(experiment: Experiment, spec: RunSpec, plan: Plan, data: Path | None) -> None:
    """Check that training reaches every step after which a worker joins.

    Raises:
        InputError: Training ends before one of the steps.
        DataError: The data cannot be read.
    """
    joins = any(parse_trigger(text).steps is not None for text in spec.start.values())
    if not experiment.steps_add_up or not joins:
        return
    parameters = with_defaults(experiment, spec.args)
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if not isinstance(epochs, int) or not isinstance(batch_size, int):
        return  # the program itself refuses such values
    all_steps = parameters.get("global_steps") or 0
    validation.check_joins(
        spec.start,
        [task.name for task in plan.tasks if task.job == validation.WORKER],
        own_steps=0 if all_steps else epochs * (training_images(data) // batch_size),
        all_steps=all_steps,
    )


def resumed_args(
    run: RunDir,
    status: RunStatus,
    experiment: Experiment,
    requested: RunSpec,
    data: Path | None,
) -> tuple[str, ...]:
    """Return all arguments of a program that resumes a run; the user's arguments take precedence.

    Raises:
        InputError: The run cannot be resumed.
        DataError: The data cannot be read.
    """
    info = check_resumable(run, experiment, None if data is None else str(data), status)
    given = hyperparameters(experiment, requested.args)
    if "checkpoint_dir" in given:
        raise InputError(
            f"--resume uses the checkpoints of run {run.run_id}", "leave out --checkpoint_dir"
        )
    argv = (*_inherited_args(info, given), *requested.args)
    parameters = with_defaults(experiment, argv)
    if experiment.steps_add_up:
        argv += global_end(parameters, info.all_epoch_workers, data)
    return argv


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
            f"run {run.run_id} was imported: it cannot be resumed", "resume a run made here"
        )
    if info.spec.own:
        raise InputError(
            f"run {run.run_id} trained your own program: it cannot be resumed",
            "resume a run of one of the experiments of lab",
        )
    if info.spec.experiment != wanted.name:
        raise InputError(
            f"run {run.run_id} is a run of {info.spec.experiment!r}, not of {wanted.name!r}",
            "resume it with its own experiment",
        )
    if info.spec.data_dir and data_dir is None:
        raise InputError(
            f"run {run.run_id} was trained on your own data, {info.spec.data_dir}",
            "pass the same data with --data_dir",
        )
    if not status.state.ended or status.note:
        raise InputError(
            f"run {run.run_id} is {status.state} and not fully collected",
            status.note
            or f"end it with `lab cancel {run.run_id}`, and collect it with `lab attach`",
        )
    if not has_checkpoint(run.checkpoints):
        raise InputError(
            f"run {run.run_id} left no checkpoint in {run.checkpoints}",
            "start a new run; --checkpoint_every 10 saves a checkpoint every 10 seconds",
        )
    return info


def _inherited_args(info: RunInfo, own: Mapping[str, Any]) -> tuple[str, ...]:
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
