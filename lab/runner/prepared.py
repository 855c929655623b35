"""Prepare a run: everything is checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.backends.base import Backend
from lab.backends.environment import Environment
from lab.backends.names import AUTO
from lab.backends.options import Values
from lab.backends.registry import backend_named, backends
from lab.backends.selection import check_compatible, choose
from lab.base.errors import InputError
from lab.base.log import LOG, passed_on
from lab.cluster.config import Cluster
from lab.cluster.config.validation import check_start
from lab.cluster.experiments import experiment_named
from lab.cluster.placement.place import Placed
from lab.cluster.placement.plan import Plan
from lab.cluster.project import Project, check_data_dir
from lab.programs import names_a_program
from lab.protocol.experiments.experiment import Experiment, OnFailure, Policy
from lab.protocol.experiments.faults import Fault, parse, parse_trigger
from lab.protocol.volume import RunSpec
from lab.runner.fault_injection import check_followed, check_targets
from lab.runner.fitting import (
    check_jobs,
    check_joins,
    check_program,
    check_runtime,
    check_texts,
    resumed_args,
)
from lab.runner.planning import make_plan, report_warnings
from lab.runner.recovery import collect_runs
from lab.runner.store.directory import RunDir

if TYPE_CHECKING:
    from lab.programs.own import OwnProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOptions:
    """The options that choose where runs are made.

    Attributes:
        backend: The backend's name, or `auto`.
        own: The options of the backend alone that are given, by their names.
        gpus: How GPUs are pinned.
        share: Whether a booted environment may use GPUs that another environment uses.
    """

    backend: str = AUTO
    own: Values = field(default_factory=dict)
    gpus: str = AUTO
    share: bool = False

    def plan(self, project: Project, runtime: str) -> Placed:
        """Place the config's tasks, with this runtime; see `make_plan`."""
        return make_plan(
            project.cluster,
            self.gpus,
            runtime=runtime,
            backend=self.backend,
            own=self.own,
            file=project.path,
        )

    def find(
        self, placed: Placed, project: Project, runs_dir: Path
    ) -> tuple[Backend, Environment | None, Placed]:
        """Choose the backend, and check whether its environment can be used; start nothing.

        If no environment is up, report the warnings of the plan and the backend, and collect the
        runs of an earlier one.

        Args:
            placed: The placement.
            project: The project.
            runs_dir: The run store that receives the runs of a stopped environment.

        Returns:
            The backend, the environment that is up (None: none is), and the placement, with the
            environment's name.

        Raises:
            LabError: No backend can be used, or the environment does not fit.
        """
        plan, named = replace(placed.plan, name=project.cluster.name), self.backend != AUTO
        known = [backend_named(self.backend, self.own)] if named else backends()
        backend, environment, plan = choose(self.backend, plan, project.root, known)
        placed = replace(placed, plan=plan)
        if environment is not None:
            check_compatible(environment, plan, project.config_name, project.root)
            for option in self.own:
                LOG.warning(f"environment {plan.name!r} is up: -o {option} has no effect")
            return backend, environment, placed
        report_warnings(placed, project.cluster, self.gpus)
        for notice in backend.notices(plan):
            LOG.info(notice)
        orphan = backend.find_any(plan.name)
        if orphan is not None:
            collect_runs(orphan, orphan.runs(), runs_dir)
        return backend, None, placed


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRun:
    """A checked run that is not started yet, with its place.

    Attributes:
        spec: The complete specification.
        project: The project.
        place: The options that chose the place.
        placed: The placement.
        backend: The backend.
        environment: The environment that is already up, and stays up; None: one is booted.
        runs_dir: The local run store.
        experiment: Its experiment; None: the one of lab that `spec` names.
        program: The user's own program; None for an experiment of the registry.
        resumes: The run whose checkpoints it resumes from, or None.
        notices: The notices of the preparation.
    """

    spec: RunSpec
    project: Project
    place: PlaceOptions
    placed: Placed
    backend: Backend
    environment: Environment | None
    runs_dir: Path
    experiment: Experiment | None = None
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
        backend, environment, placed = self.place.find(self.placed, self.project, self.runs_dir)
        return replace(self, backend=backend, environment=environment, placed=placed)


def prepare_run(
    asked: RunSpec,
    project: Project,
    runs_dir: Path,
    place: PlaceOptions,
    *,
    data_dir: str | None = None,
    on_failure: Policy | None = None,
    faults: Sequence[Fault] = (),
    framework: str | None = None,
    resume: str | None = None,
    detach: bool = False,
) -> PreparedRun:
    """Check all options of a run, and choose its backend and environment; start nothing.

    Args:
        asked: What the user asks for. Its experiment may be the path of the user's own program.
        project: The project.
        runs_dir: The local run store.
        place: Where the run is made.
        data_dir: The user's own data; None: the shipped data.
        on_failure: The policy for a failed task; None: the experiment's policy.
        faults: Faults to inject, in addition to those of the experiment and the config.
        framework: The runtime of the user's own program; None: the one that it needs.
        resume: The run whose checkpoints this run starts from.
        detach: Whether no client will follow the run.

    Raises:
        InputError: An option is invalid, or does not fit the config.
        LabError: The plan does not fit the host, or no backend can be used here.
    """
    notices: list[str] = []
    with passed_on(notices.append):
        experiment, own = _experiment(asked, framework, project)
        experiment = replace(experiment, policy=on_failure or experiment.policy)
        data = _data(data_dir, experiment)
        placed = place.plan(project, experiment.runtime)
        resumes, inherited = _resumed(asked, resume, experiment, data, runs_dir)
        spec = _completed(asked, experiment, faults, project.cluster, placed.plan)
        spec = replace(spec if own is None else own.complete(spec), **inherited)
        check_texts(spec, [task.name for task in placed.plan.tasks])
        check_joins(experiment, spec, placed.plan, data)
        check_followed(map(parse, spec.faults if detach else ()))
        backend, environment, placed = place.find(placed, project, runs_dir)
        inside = "" if data is None else backend.task_path(data, project.root)
        packages = _packages(own, spec, placed.plan, backend.name, project)
        spec = replace(spec, data_dir=inside, packages=packages)
    return PreparedRun(
        spec=spec,
        project=project,
        place=place,
        placed=placed,
        backend=backend,
        environment=environment,
        runs_dir=runs_dir,
        experiment=experiment,
        program=own,
        resumes=resumes,
        notices=tuple(notices),
    )


def _experiment(
    spec: RunSpec, framework: str | None, project: Project
) -> tuple[Experiment, OwnProgram | None]:
    """Return the experiment, and the user's own program if the experiment is not registered."""
    name, is_own = spec.experiment, spec.module or names_a_program(spec.experiment)
    wanted = None if is_own else experiment_named(name, project.root)
    if wanted is None or wanted.origin:
        # Imported here: an experiment of the registry needs none of its modules.
        from lab.runner.own_experiment import named_experiment, own_experiment  # noqa: PLC0415

        if wanted is not None:
            return named_experiment(wanted, spec, framework, project)
        return own_experiment(spec, framework, project)
    for flag, is_given in {"--record": spec.record, "--with": spec.packages}.items():
        if is_given:
            raise InputError(f"{flag}: {name} is an experiment", f"leave out {flag}")
    if spec.listing:
        problem = f"--listing: {name} is an experiment, not a printed program"
        raise InputError(problem, "use the path of a printed program, or leave out --listing")
    check_jobs(wanted, project)
    check_runtime(wanted, framework)
    check_program(wanted, project.root)
    return wanted, None


def _data(data_dir: str | None, experiment: Experiment) -> Path | None:
    """Return the directory of the user's own data, if there is one."""
    data = check_data_dir(data_dir)
    if data is not None and not experiment.has_data:
        raise InputError(f"experiment {experiment.name!r} uses no data", "leave out --data_dir")
    return data


def _completed(
    asked: RunSpec, experiment: Experiment, faults: Sequence[Fault], cluster: Cluster, plan: Plan
) -> RunSpec:
    """Return the specification with what the experiment and the config add to it.

    Raises:
        InputError: The start schedule, the policy or a fault does not fit.
    """
    start = {**cluster.start, **asked.start}
    check_start(start, [task.name for task in plan.tasks])
    joins = [task for task, text in start.items() if parse_trigger(text).steps is not None]
    if experiment.gang and joins:
        raise InputError(
            f"{joins[0]} waits for a step, but experiment {experiment.name!r} cannot make a step"
            f" without {joins[0]}",
            f"start {joins[0]} after a time, such as 10s",
        )
    is_own = experiment.origin or asked.module or names_a_program(asked.experiment)
    may_continue = experiment.steps_add_up or (is_own and not experiment.gang)
    if experiment.policy.on_failure is OnFailure.CONTINUE and not may_continue:
        raise InputError(
            f"--on-failure continue: experiment {experiment.name!r} needs all of its workers",
            "use --on-failure fail, or --on-failure restart",
        )
    all_faults = [*map(parse, (*experiment.faults, *cluster.faults)), *faults]
    nodes = {task.name: task.node for task in plan.tasks}
    must_talk = experiment.must_talk and cluster.needs is None
    return replace(
        asked,
        experiment=experiment.name,
        start=start,
        env={**cluster.env, **asked.env},
        faults=check_targets(all_faults, nodes, asked.stall_s),
    ).completed(replace(experiment, must_talk=must_talk))


def _resumed(
    asked: RunSpec, resume: str | None, experiment: Experiment, data: Path | None, runs_dir: Path
) -> tuple[RunDir | None, dict[str, Any]]:
    """Return the run that a run resumes from, and the fields of its specification that follow."""
    if resume is None:
        return None, {}
    # Imported here: most runs resume from no other.
    from lab.runner.status import StatusProber, status_or_warn  # noqa: PLC0415
    from lab.runner.store.names import find_run  # noqa: PLC0415

    run = find_run(resume, runs_dir)
    status = status_or_warn(run, StatusProber(backends))
    args = resumed_args(run, status, experiment, asked, data)
    return run, {"args": args, "resumed_from": run.run_id}


def _packages(
    own: OwnProgram | None, spec: RunSpec, plan: Plan, backend: str, project: Project
) -> tuple[str, ...]:
    """Return the packages that the user's own program brings along, with versions and hashes."""
    if own is None:
        return ()
    from lab.runner.own_experiment import check_place  # noqa: PLC0415

    wanted = [*project.cluster.packages, *spec.packages]
    return check_place(own, plan, backend, project.root, wanted)
