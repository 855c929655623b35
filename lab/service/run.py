"""Prepare and execute one run: everything is checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lab.backends.names import AUTO
from lab.backends.registry import backends
from lab.config import Cluster
from lab.config import start_schedule as schedule
from lab.errors import InputError, Notify
from lab.experiments.faults import Fault, parse
from lab.experiments.policy import OnFailure, Policy
from lab.experiments.registry import Experiment
from lab.experiments.trigger import parse_trigger
from lab.placement.plan import Plan
from lab.program import names_a_program
from lab.program.own import OwnProgram, read_program
from lab.project import Project, check_data_dir
from lab.run.fault_injection import check_followed, check_targets
from lab.run.fitting import check_jobs, check_program, experiment_named
from lab.run.own_experiment import check_ranks, experiment_of
from lab.run.prepare import Submission, prepare
from lab.run.runner import execute_run
from lab.run.status import StatusProber, status_or_warn
from lab.run.view import View
from lab.service.planning import PlanResult, make_plan
from lab.service.record_option import check_record
from lab.service.run_steps import check_joins, resumed_args
from lab.service.target import Target, find_target, run_in_turn
from lab.store.directory import RunDir
from lab.store.names import find_run
from lab.store.run_info import RunInfo
from lab.store.summary import Summary
from lab.tf_versions import CURRENT, IMAGES, TF1
from lab.volume import READY_S, RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run: the flags of `lab run`, or the arguments of `lab.api.run`.

    Attributes:
        spec: The run itself. Its `experiment` may be the path of the user's own program.
            `prepare_run` adds the values of the experiment and the config.
        backend: The backend's name, or `auto`.
        gpus: How GPUs are pinned.
        explain: Report the reason for each node's GPUs and each task's CPUs.
        strict: Refuse a plan with less than the config asks for, or with a GPU in use.
        share: Whether a booted environment may use GPUs that another environment uses.
        data_dir: The user's own data; None: the shipped data.
        keep: Whether to keep a booted environment after the run.
        detach: Whether to return as soon as the run is submitted.
        wait: Whether to wait for other runs of the environment; otherwise they are an error.
        ready_s: Seconds within which every program must be ready; None: the default.
        on_failure: The policy for a failed task; None: the experiment's policy.
        faults: Faults to inject, in addition to those of the experiment and the config.
        tensorflow: The TensorFlow version of the user's own program; None: the default.
        resume: The run whose checkpoints this run starts from.
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


class RunInterruptedError(KeyboardInterrupt):
    """The user interrupted a run that has a directory in the run store.

    Attributes:
        run: The run.
    """

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self.run = run


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A checked run that is not started yet.

    Attributes:
        options: The user's options.
        submission: The checked request.
        planned: The placement.
        target: The backend and the environment of the run.
        find_target: Finds the target again: the environment may have changed since.
        runs_dir: The local run store.
    """

    options: RunOptions
    submission: Submission
    planned: PlanResult
    target: Target
    find_target: Callable[[], Target]
    runs_dir: Path


def prepare_run(
    options: RunOptions,
    project: Project,
    runs_dir: Path,
    *,
    notify: Notify,
    warn: Notify | None = None,
    beside: PreparedRun | None = None,
) -> PreparedRun:
    """Check all options of a run, and choose its backend and environment; start nothing.

    Args:
        options: The user's options.
        project: The project.
        runs_dir: The local run store.
        notify: Receives explanations, the chosen backend, and notices.
        warn: Receives warnings; None: `notify` receives them.
        beside: Another run of the same environment; this run uses its placement and target.

    Raises:
        InputError: An option is invalid, or does not fit the config.
        LabError: The plan does not fit the host, or no backend can be used here.
    """
    notices: list[str] = []
    notify, warn = _recorded(notify, notices), _recorded(warn or notify, notices)
    experiment, own = _experiment(options, project, notify)
    if own is not None and own.notice:
        warn(f"warning: {own.notice}")
    data = check_data_dir(options.data_dir)
    if data is not None and not experiment.has_data:
        raise InputError(f"experiment {experiment.name!r} reads no data", "leave out --data_dir")
    if beside is not None:
        planned = beside.planned
    else:
        explain = notify if options.explain else None
        planned = make_plan(
            project.cluster,
            options.gpus,
            tensorflow=experiment.tensorflow,
            backend=options.backend,
            file=project.path,
            explain=explain,
        )
    spec = replace(options.spec, experiment=experiment.name).completed(experiment)
    spec = spec if own is None else own.complete(spec)
    spec = _resolve(spec, options, experiment, project.cluster, planned.plan, notify=notify)
    known = backends(options.backend)
    resumes = None if options.resume is None else find_run(options.resume, runs_dir)
    if resumes is not None:
        status = status_or_warn(resumes, StatusProber(backends), notify)
        spec = replace(spec, args=resumed_args(resumes, status, experiment, options.spec, data))
    check_joins(experiment, spec, planned.plan, data)
    if options.detach:
        check_followed(map(parse, spec.faults))
    find = partial(
        find_target,
        options.backend,
        planned,
        project,
        known,
        runs_dir,
        notify=notify,
        warn=warn,
        strict=options.strict,
        share=options.share,
    )
    target = find() if beside is None else beside.target
    inside = "" if data is None else target.backend.task_path(data, project.root)
    spec = replace(spec, data_dir=inside)
    submission = Submission(
        spec, planned.plan, project.root, project.path, own, resumes, tuple(notices)
    )
    return PreparedRun(options, submission, planned, target, find, runs_dir)


def execute(
    prepared: PreparedRun,
    *,
    view: Callable[[RunDir, RunInfo], AbstractContextManager[View]],
    notify: Notify,
    warn: Notify | None = None,
) -> tuple[RunDir, Summary]:
    """Boot an environment if none is up, train, collect, and remove what was booted.

    Args:
        prepared: The run.
        view: Makes the view of the run, which is entered while the run is followed.
        notify: Receives progress.
        warn: Receives the position in the queue; None: `notify` receives it.

    Returns:
        The run, and its summary; for a detached run, the summary so far.

    Raises:
        LabError: The run could not be executed.
        RunInterruptedError: The user interrupted the run after it had begun.
        KeyboardInterrupt: The user interrupted the run before that.
    """
    options, submission = prepared.options, prepared.submission

    def once(target: Target, begin: Notify) -> tuple[RunDir, Summary]:
        run = prepare(submission, prepared.runs_dir)

        def shown(info: RunInfo) -> AbstractContextManager[View]:
            nonlocal run  # the run that continues an interrupted one
            run = RunDir(prepared.runs_dir / info.run_id)
            return view(run, info)

        try:
            begin(run.run_id)
            notify(f"run {run.run_id}: {run.path}")
            for line in submission.program.notes() if submission.program is not None else ():
                notify(line)
        except BaseException:
            run.discard()
            raise
        try:
            summary = execute_run(
                run,
                boot=lambda defer: target.boot(defer, notify),
                found=target.found,
                keep=options.keep,
                detach=options.detach,
                view=shown,
                notify=notify,
            )
        except KeyboardInterrupt:
            if run.path.is_dir():
                raise RunInterruptedError(run) from None
            raise
        return run, summary

    return run_in_turn(
        prepared.target, prepared.find_target, once, wait=options.wait, notify=warn or notify
    )


def _recorded(notify: Notify, notices: list[str]) -> Notify:
    """Return a function that passes notices on, and adds them to a list."""

    def record(line: str) -> None:
        notices.append(line)
        notify(line)

    return record


def _experiment(
    options: RunOptions, project: Project, notify: Notify
) -> tuple[Experiment, OwnProgram | None]:
    """Return the experiment, and the user's own program if the experiment is not registered."""
    spec, name = options.spec, options.spec.experiment
    own = None
    if spec.module or names_a_program(name):
        if spec.record:
            check_record(spec.record)
        own = read_program(
            name,
            module=spec.module,
            listing=spec.listing,
            argv=spec.args,
            jobs={job: len(each.on) for job, each in project.cluster.jobs.items()},
            given=spec.map,
        )
    listing = spec.listing or (own is not None and own.tensorflow_1 is not None)
    for flag, given in (("--faithful", spec.faithful), ("--mend", spec.mend)):
        if given and not listing:
            raise InputError(
                f"{flag} is only for printed programs", f"add --listing, or leave out {flag}"
            )
    if own is not None:
        return _own_experiment(own, options, project, notify), own
    for flag, used in (("--map", spec.map), ("--record", spec.record)):
        if used:
            raise InputError(f"{flag}: {name} is an experiment", f"leave out {flag}")
    if spec.listing:
        what = f"--listing: {name} is an experiment, not a printed program"
        raise InputError(what, "give the path of a printed program, or leave out --listing")
    wanted = experiment_named(name)
    if options.tensorflow not in {None, wanted.tensorflow}:
        what = f"experiment {name!r} needs TensorFlow {wanted.tensorflow}"
        raise InputError(what, "leave out --tensorflow")
    config = project.path or Path(project.cluster.name)
    check_jobs(wanted, project.cluster, config, project.root)
    check_program(wanted, project.root)
    return wanted, None


def _own_experiment(
    own: OwnProgram, options: RunOptions, project: Project, notify: Notify
) -> Experiment:
    """Return the experiment of a user's own program, with the TensorFlow version that it needs."""
    default = CURRENT if own.need is None else TF1
    tensorflow = options.tensorflow or default.tensorflow
    horovod = own.horovod and bool(IMAGES[tensorflow].horovod)
    made = experiment_of(own, project.cluster, tensorflow, horovod=horovod)
    if own.need is not None:
        chosen = options.tensorflow is not None
        if notice := own.need.notice(own.program, tensorflow, chosen=chosen):
            notify(notice)
    # A program that gets its job may serve without Horovod.
    gets_job = any("{job}" in each for each in (*own.cluster_args, *options.spec.args))
    if horovod and not own.programs and not gets_job:
        check_ranks(own, made, project.cluster, project.config_name, project.root)
    return made


def _resolve(
    spec: RunSpec,
    options: RunOptions,
    experiment: Experiment,
    cluster: Cluster,
    plan: Plan,
    *,
    notify: Notify,
) -> RunSpec:
    """Combine the options with the values of the config and the experiment.

    Raises:
        InputError: The start schedule, the policy or a fault does not fit.
    """
    start = {**cluster.start, **spec.start}
    schedule.check_start(start, [task.name for task in plan.tasks])
    joins = [task for task, text in start.items() if parse_trigger(text).steps is not None]
    if experiment.gang and joins:
        raise InputError(
            f"{joins[0]} waits for a step, but experiment {experiment.name!r} makes no step"
            f" without {joins[0]}",
            f"start {joins[0]} after a time, such as 10s",
        )
    policy = options.on_failure or experiment.policy
    if policy.on_failure is OnFailure.CONTINUE and not (
        experiment.steps_add_up or (spec.own and not experiment.gang)
    ):
        raise InputError(
            f"--on-failure continue: experiment {experiment.name!r} needs all of its workers",
            "use --on-failure fail, or --on-failure restart",
        )
    ready_s = options.ready_s
    if ready_s is None:
        # A user's own program may never report that it is ready.
        ready_s = 0.0 if spec.own else READY_S
    return replace(
        spec,
        ready_s=ready_s,
        start=start,
        on_failure=policy.on_failure,
        restarts=policy.restarts,
        faults=check_targets(
            [*map(parse, (*experiment.faults, *cluster.faults)), *options.faults],
            {task.name: task.node for task in plan.tasks},
            spec.stall_s,
            notify,
        ),
    )
