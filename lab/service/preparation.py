"""From the options of a run to what is asked of its tasks, checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.backends import Backend, Say
from lab.backends.choose import AUTO, backends
from lab.config import Cluster
from lab.errors import InputError
from lab.placement import start_schedule as schedule
from lab.placement.plan import Plan
from lab.run import project as project_files
from lab.run.faulting import check_followed, settle
from lab.run.prepare import Submission, check_resumable, end_of, inherited
from lab.run.program import OwnProgram, names_a_program, read_program
from lab.run.standing import Ask, Volumes, told
from lab.run.store import RunDir, find_run
from lab.service.planning import PlanResult, Project, make_plan
from lab.service.target import Target, find_target
from lab.task.experiments import Experiment
from lab.task.faults import Fault, concrete, parse
from lab.task.parameters import defaults, hyperparameters
from lab.task.policy import OnFailure, Policy
from lab.task.protocol import READY_S, RunSpec
from lab.task.when import parse_when
from lab.tf_versions import CURRENT


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What a user asks of a run: the options of `lab run`, the arguments of `lab.api.run`.

    Attributes:
        spec: What holds for the run itself, as far as the user gives it; its `experiment` may be
            the path of the user's own program, and `args` and `start` are added to those of the
            experiment and the config.
        backend: The backend's name, or `auto`.
        gpus: How GPUs are pinned.
        explain: Report why each node has its GPUs and each task its CPUs.
        strict: Refuse a plan with less than the config asks for, or with a GPU in use.
        share: Whether a booted environment may use GPUs that another environment holds.
        data_dir: The user's own data; None: the shipped data.
        keep: Whether a booted environment stays up.
        detach: Whether to leave the run as soon as it is submitted.
        wait: Whether to wait for other runs of the environment; otherwise they are an error.
        ready_s: Seconds within which every program must be ready; None: the default.
        on_failure: What a failed task means to the run; None: the experiment's policy.
        faults: Faults to inject, beside those of the experiment and the config.
        tensorflow: The TensorFlow version of the user's own program; None: the default.
        resume: The run whose checkpoints this one starts from.
    """

    spec: RunSpec
    backend: str = AUTO
    gpus: str = AUTO
    explain: bool = False
    strict: bool = False
    share: bool = False
    data_dir: str | None = None
    keep: bool = False
    detach: bool = False
    wait: bool = False
    ready_s: float | None = None
    on_failure: Policy | None = None
    faults: Sequence[Fault] = ()
    tensorflow: str | None = None
    resume: str | None = None


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A checked run, before its target is chosen.

    Attributes:
        options: What the user asked for.
        project: The project.
        runs_dir: The local run store.
        planned: The placement.
        known: All backends.
        order: The run; its `data_dir` is a path of this host.
    """

    options: RunOptions
    project: Project
    runs_dir: Path
    planned: PlanResult
    known: Sequence[Backend]
    order: Submission

    def find_target(self, say: Say, warn: Say | None = None) -> Target:
        """Choose where the run is made; see `lab.service.target.find_target`.

        Raises:
            LabError: No backend can be used, or another environment has this name.
        """
        return find_target(
            self.options.backend,
            self.planned,
            self.project,
            self.known,
            self.runs_dir,
            say=say,
            warn=warn,
            strict=self.options.strict,
            share=self.options.share,
        )

    def order_for(self, target: Target) -> Submission:
        """The run with the data's path as a task of the target sees it.

        Raises:
            InputError: A container cannot see it.
        """
        spec = self.order.spec
        data = Path(spec.data_dir) if spec.data_dir else None
        inside = project_files.data_dir_inside(data, target.backend.name, self.project.root)
        return replace(self.order, spec=replace(spec, data_dir=inside))


def prepare_run(
    options: RunOptions,
    project: Project,
    runs_dir: Path,
    *,
    say: Say,
    planned: PlanResult | None = None,
) -> PreparedRun:
    """Check everything that is asked of a run; nothing is started, nothing is written.

    Args:
        options: What the user asks for.
        project: The project.
        runs_dir: The local run store.
        say: Receives explanations and warnings.
        planned: The placement, where it is known already.

    Raises:
        InputError: An option is wrong, or does not fit the config.
        LabError: The plan does not fit the host.
    """
    experiment, own = _experiment(options, project)
    data = project_files.check_data_dir(options.data_dir, experiment)
    if planned is None:
        planned = make_plan(
            project.cluster,
            options.gpus,
            tensorflow=experiment.tensorflow,
            explain=say if options.explain else None,
        )
    spec = replace(
        options.spec, experiment=experiment.name, data_dir="" if data is None else str(data)
    ).completed(experiment)
    spec = spec if own is None else own.complete(spec)
    spec = _resolve(spec, options, experiment, project.cluster, planned.plan, say=say)
    known = backends()
    resumed_run = None
    if options.resume is not None:
        resumed_run = find_run(options.resume, runs_dir)
        stands = Volumes(lambda: known)
        own_args = options.spec.args
        args = _resumed_args(resumed_run, experiment, own_args, data, ask=stands, say=say)
        spec = replace(spec, args=args)
    _check_joins(experiment, spec, planned.plan, data)
    if options.detach:
        check_followed(map(concrete, spec.faults))
    order = Submission(spec, planned.plan, project.root, project.path, own, resumed_run)
    return PreparedRun(options, project, runs_dir, planned, known, order)


def _experiment(options: RunOptions, project: Project) -> tuple[Experiment, OwnProgram | None]:
    """The experiment, and the user's own program where it is none of the registry."""
    spec, name = options.spec, options.spec.experiment
    for flag, given in (("--faithful", spec.faithful), ("--mend", spec.mend)):
        if given and not spec.listing:
            raise InputError(f"{flag} is for printed programs", "add --listing, or leave it out")
    if names_a_program(name):
        own = read_program(name, listing=spec.listing, argv=spec.args)
        tensorflow = options.tensorflow or CURRENT.tensorflow
        return project_files.experiment_of(own, project.cluster, tensorflow), own
    if spec.listing:
        what = f"--listing: {name} is an experiment of the lab"
        raise InputError(what, "name the path of a printed program")
    wanted = project_files.experiment(name)
    if options.tensorflow not in {None, wanted.tensorflow}:
        what = f"experiment {name!r} needs TensorFlow {wanted.tensorflow}"
        raise InputError(what, "leave out --tensorflow")
    description = project.path or Path(project.cluster.name)
    project_files.check_jobs(wanted, project.cluster, description, project.root)
    project_files.check_program(wanted, project.root)
    return wanted, None


def _resolve(
    spec: RunSpec,
    options: RunOptions,
    experiment: Experiment,
    cluster: Cluster,
    plan: Plan,
    *,
    say: Say,
) -> RunSpec:
    """Combine the options with what the config and the experiment say.

    Raises:
        InputError: The start schedule, the policy or a fault does not fit.
    """
    moments = {**cluster.start, **spec.start}
    schedule.check_start(moments, [task.name for task in plan.tasks])
    joins = [task for task, text in moments.items() if parse_when(text).steps is not None]
    if experiment.gang and joins:
        raise InputError(
            f"experiment {experiment.name!r} makes no step without {joins[0]}, which waits for one",
            "give it a time, such as 10s",
        )
    policy = options.on_failure or experiment.policy
    if policy.on_failure is OnFailure.CONTINUE and not (spec.own or experiment.steps_add_up):
        raise InputError(
            f"experiment {experiment.name!r} cannot go on without one of its workers",
            "take --on-failure fail, or restart",
        )
    ready_s = options.ready_s
    if ready_s is None:
        # A user's own program may never report that it is ready.
        ready_s = 0.0 if spec.own else READY_S
    return replace(
        spec,
        ready_s=ready_s,
        start=moments,
        on_failure=policy.on_failure,
        restarts=policy.restarts,
        faults=settle(
            [*map(parse, (*experiment.faults, *cluster.faults)), *options.faults],
            {task.name: task.node for task in plan.tasks},
            spec.stall_s,
            say,
        ),
    )


def _check_joins(experiment: Experiment, spec: RunSpec, plan: Plan, data: Path | None) -> None:
    """Check that training reaches every step after which a worker joins.

    Raises:
        InputError: One of the steps never comes.
        DataError: The data cannot be read.
    """
    joins = any(parse_when(text).steps is not None for text in spec.start.values())
    if not experiment.steps_add_up or not joins:
        return
    parameters = defaults(experiment) | hyperparameters(experiment, spec.args)
    epochs, batch_size = parameters.get("epochs"), parameters.get("batch_size")
    if not isinstance(epochs, int) or not isinstance(batch_size, int):
        return  # the program refuses them
    all_steps = parameters.get("global_steps") or 0
    schedule.check_joins(
        spec.start,
        [task.name for task in plan.tasks if task.job == schedule.WORKER],
        own_steps=0 if all_steps else epochs * (_training_images(data) // batch_size),
        all_steps=all_steps,
    )


def _resumed_args(
    run: RunDir,
    experiment: Experiment,
    own: Sequence[str],
    data: Path | None,
    *,
    ask: Ask,
    say: Say,
) -> tuple[str, ...]:
    """All arguments of a program that starts from a run's checkpoints.

    Args:
        run: The run.
        experiment: The experiment.
        own: The user's own arguments, which override that run's.
        data: The directory with the user's own data, or None.
        ask: Looks for the run on the run volumes.
        say: Receives what cannot be found out about the run.

    Raises:
        InputError: The run cannot be resumed.
        DataError: The data cannot be read.
    """
    stands = told(run, ask, say)
    info = check_resumable(run, experiment, None if data is None else str(data), stands)
    given = hyperparameters(experiment, own)
    if "checkpoint_dir" in given:
        raise InputError(
            f"--resume takes the checkpoints of run {run.run_id}", "leave out --checkpoint_dir"
        )
    argv = (*inherited(info, given), *own)
    parameters = defaults(experiment) | hyperparameters(experiment, argv)
    if experiment.steps_add_up:
        argv += tuple(end_of(info, parameters, lambda: _training_images(data)))
    return argv


def _training_images(data: Path | None) -> int:
    from lab.task.data import load_mnist  # noqa: PLC0415  (NumPy, which few runs need here)

    return len(load_mnist(data).train)
