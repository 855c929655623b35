"""Prepare a run: everything is checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends.base import Backend
from lab.backends.environment import Environment
from lab.backends.gpu_verification import boot
from lab.backends.names import AUTO
from lab.backends.registry import backends, options_of
from lab.backends.selection import check_compatible, choose
from lab.config import Cluster
from lab.config.validation import check_start
from lab.errors import InputError
from lab.experiments.experiment import Experiment, OnFailure, Policy
from lab.experiments.faults import Fault, parse, parse_trigger
from lab.log import LOG, passed_on
from lab.placement.place import Placed
from lab.placement.plan import Plan
from lab.program import names_a_program
from lab.project import Project, check_data_dir
from lab.run.fault_injection import check_followed, check_targets
from lab.run.fitting import (
    check_jobs,
    check_joins,
    check_program,
    check_texts,
    experiment_named,
    resumed_args,
)
from lab.run.planning import make_plan, report_warnings
from lab.run.recovery import collect_runs
from lab.store.directory import RunDir
from lab.store.names import find_run
from lab.volume import RunSpec

if TYPE_CHECKING:
    from lab.program.own import OwnProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run: the flags of `lab run`, or the arguments of `lab.run`.

    Attributes:
        spec: The run itself. Its `experiment` may be the path of the user's own program.
            `prepare_run` adds the values of the experiment and the config.
        backend: The backend's name, or `auto`.
        option: Options of the backend alone, `key=value`.
        gpus: How GPUs are pinned.
        share: Whether a booted environment may use GPUs that another environment uses.
        data_dir: The user's own data; None: the shipped data.
        detach: Whether to return as soon as the run is submitted.
        on_failure: The policy for a failed task; None: the experiment's policy.
        faults: Faults to inject, in addition to those of the experiment and the config.
        framework: The runtime of the user's own program; None: the one that it needs.
        resume: The run whose checkpoints this run starts from.
    """

    spec: RunSpec
    backend: str = AUTO
    option: Sequence[str] = ()
    gpus: str = AUTO
    share: bool = False
    data_dir: str | None = None
    detach: bool = False
    on_failure: Policy | None = None
    faults: Sequence[Fault] = ()
    framework: str | None = None
    resume: str | None = None

    def find_place(
        self, placed: Placed, project: Project, runs_dir: Path
    ) -> tuple[Backend, Environment | None, Placed]:
        """Choose the backend and its environment by these options; see `find_place`."""
        return find_place(self.backend, self.gpus, placed, project, runs_dir, option=self.option)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A checked run that is not started yet, with its place.

    Attributes:
        options: The user's options.
        spec: The complete specification.
        project: The project.
        placed: The placement.
        backend: The backend.
        environment: The environment that is already up, and stays up; None: one is booted.
        runs_dir: The local run store.
        program: The user's own program; None for an experiment of the registry.
        resumes: The run whose checkpoints it resumes from, or None.
        notices: The notices of the preparation.
    """

    options: RunOptions
    spec: RunSpec
    project: Project
    placed: Placed
    backend: Backend
    environment: Environment | None
    runs_dir: Path
    program: OwnProgram | None = None
    resumes: RunDir | None = None
    notices: tuple[str, ...] = ()

    @property
    def plan(self) -> Plan:
        """The placement of its tasks."""
        return self.placed.plan

    def with_args(self, *args: str) -> PreparedRun:
        """Return the run with other arguments of its program."""
        return replace(self, spec=replace(self.spec, args=args))

    def placed_again(self) -> PreparedRun:
        """Choose the environment again, after a wait in which it may have changed."""
        found = self.options.find_place(self.placed, self.project, self.runs_dir)
        backend, environment, placed = found
        return replace(self, backend=backend, environment=environment, placed=placed)

    def boot(self, defer: Callable[[], None]) -> Environment:
        """Boot an environment and verify that its tasks have the GPUs of the plan.

        Args:
            defer: Called when the environment is up; from then on the caller must remove it.

        Raises:
            LabError: The environment cannot be booted, or differs from the plan; it is removed.
        """
        return boot(
            self.backend,
            self.plan,
            root=self.project.root,
            share=self.options.share,
            then=lambda _environment: defer(),
        )


def prepare_run(
    options: RunOptions,
    project: Project,
    runs_dir: Path,
    *,
    beside: PreparedRun | None = None,
) -> PreparedRun:
    """Check all options of a run, and choose its backend and environment; start nothing.

    Args:
        options: The user's options.
        project: The project.
        runs_dir: The local run store.
        beside: Another run of the same environment; this run uses its placement and place.

    Raises:
        InputError: An option is invalid, or does not fit the config.
        LabError: The plan does not fit the host, or no backend can be used here.
    """
    notices: list[str] = []
    with passed_on(notices.append):
        prepared = _prepare_run(options, project, runs_dir, beside)
    return replace(prepared, notices=tuple(notices))


def _prepare_run(
    options: RunOptions, project: Project, runs_dir: Path, beside: PreparedRun | None
) -> PreparedRun:
    experiment, own = _experiment(options, project)
    data = check_data_dir(options.data_dir)
    if data is not None and not experiment.has_data:
        raise InputError(f"experiment {experiment.name!r} reads no data", "leave out --data_dir")
    if beside is not None:
        placed = beside.placed
    else:
        placed = make_plan(
            project.cluster,
            options.gpus,
            runtime=experiment.runtime,
            backend=options.backend,
            own=options_of(options.backend, options.option),
            file=project.path,
        )
    spec = replace(options.spec, experiment=experiment.name).completed(experiment)
    spec = spec if own is None else own.complete(spec)
    spec = _resolve(spec, options, experiment, project.cluster, placed.plan)
    check_texts(spec, [task.name for task in placed.plan.tasks])
    resumes = None if options.resume is None else find_run(options.resume, runs_dir)
    if resumes is not None:
        # Imported here: most runs resume from no other.
        from lab.run.status import StatusProber, status_or_warn  # noqa: PLC0415

        status = status_or_warn(resumes, StatusProber(backends))
        args = resumed_args(resumes, status, experiment, options.spec, data)
        spec = replace(spec, args=args, resumed_from=resumes.run_id)
    check_joins(experiment, spec, placed.plan, data)
    if options.detach:
        check_followed(map(parse, spec.faults))
    if beside is not None:
        backend, environment = beside.backend, beside.environment
    else:
        backend, environment, placed = options.find_place(placed, project, runs_dir)
    if own is not None:
        from lab.run.own_experiment import check_place  # noqa: PLC0415

        wanted = [*project.cluster.packages, *spec.packages]
        packages = check_place(own, placed.plan, backend.name, project.root, wanted)
        spec = replace(spec, packages=packages)
    inside = "" if data is None else backend.task_path(data, project.root)
    return PreparedRun(
        options=options,
        spec=replace(spec, data_dir=inside),
        project=project,
        placed=placed,
        backend=backend,
        environment=environment,
        runs_dir=runs_dir,
        program=own,
        resumes=resumes,
    )


def find_place(
    name: str,
    mode: str,
    placed: Placed,
    project: Project,
    runs_dir: Path,
    *,
    option: Sequence[str] = (),
) -> tuple[Backend, Environment | None, Placed]:
    """Choose the backend, and check whether its environment can be used; start nothing.

    If no environment is up, report the warnings of the plan and the backend, and collect the runs
    of an earlier one.

    Args:
        name: The backend's name, or `auto`.
        mode: How GPUs were to be pinned.
        placed: The placement.
        project: The project.
        runs_dir: The run store that receives the runs of a stopped environment.
        option: Options of the backend alone, `key=value`.

    Returns:
        The backend, the environment that is up (None: none is), and the placement, with the
        environment's name.

    Raises:
        LabError: No backend can be used, or the environment does not fit.
    """
    plan = replace(placed.plan, name=project.cluster.name)
    backend, environment, plan = choose(name, plan, project.root, backends(name, option))
    placed = replace(placed, plan=plan)
    if environment is not None:
        check_compatible(environment, plan, project.config_name, project.root)
        if option:
            LOG.warning(f"environment {plan.name!r} is up: -o {option[0]} has no effect")
        return backend, environment, placed
    report_warnings(placed, project.cluster, mode)
    for notice in backend.notices(plan):
        LOG.info(notice)
    orphan = backend.find_any(plan.name)
    if orphan is not None:
        collect_runs(orphan, runs_dir)
    return backend, None, placed


def _experiment(options: RunOptions, project: Project) -> tuple[Experiment, OwnProgram | None]:
    """Return the experiment, and the user's own program if the experiment is not registered."""
    spec, name = options.spec, options.spec.experiment
    if spec.module or names_a_program(name):
        # Imported here: an experiment of the registry needs none of its modules.
        from lab.run.own_experiment import own_experiment  # noqa: PLC0415

        return own_experiment(spec, options.framework, project)
    for flag, is_given in {"--record": spec.record, "--with": spec.packages}.items():
        if is_given:
            raise InputError(f"{flag}: {name} is an experiment", f"leave out {flag}")
    if spec.listing:
        problem = f"--listing: {name} is an experiment, not a printed program"
        raise InputError(problem, "give the path of a printed program, or leave out --listing")
    wanted = experiment_named(name)
    if options.framework not in {None, wanted.runtime}:
        problem = f"experiment {name!r} needs {wanted.runtime}"
        raise InputError(problem, "leave out --framework")
    check_jobs(wanted, project)
    check_program(wanted, project.root)
    return wanted, None


def _resolve(
    spec: RunSpec, options: RunOptions, experiment: Experiment, cluster: Cluster, plan: Plan
) -> RunSpec:
    """Combine the options with the values of the config and the experiment.

    Raises:
        InputError: The start schedule, the policy or a fault does not fit.
    """
    start = {**cluster.start, **spec.start}
    check_start(start, [task.name for task in plan.tasks])
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
    return replace(
        spec,
        start=start,
        must_talk=spec.must_talk and cluster.needs is None,
        env={**cluster.env, **spec.env},
        on_failure=policy.on_failure,
        restarts=policy.restarts,
        faults=check_targets(
            [*map(parse, (*experiment.faults, *cluster.faults)), *options.faults],
            {task.name: task.node for task in plan.tasks},
            spec.stall_s,
        ),
    )
