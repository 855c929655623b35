"""The experiment that a user's own program makes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from lab.backends.names import CLASS, COMPOSE, LOCAL, capabilities
from lab.backends.python import base_environ, installed_packages, version_of
from lab.base.errors import InputError
from lab.base.log import LOG
from lab.base.shipped import SHIPPED
from lab.base.variables import LAB_IMAGE
from lab.cluster.config import Cluster
from lab.cluster.placement.plan import Plan
from lab.cluster.project import Project
from lab.programs.imports import missing_here, missing_in_image, package_of, packages_of
from lab.programs.own import OwnProgram, read_program
from lab.programs.packages import (
    IMAGE_PYTHON,
    TaskPython,
    folder_of,
    has_module,
    install,
    lock_packages,
    locked_versions,
)
from lab.protocol.experiments.experiment import Experiment
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.frameworks import FRAMEWORKS
from lab.protocol.records.record_pattern import GROUPS, LONGEST, PatternError, RecordPattern
from lab.protocol.runtimes import HERITAGE, RUNTIMES, TENSORFLOW
from lab.protocol.volume import RunSpec
from lab.protocol.volume.layout import task_names
from lab.protocol.volume.run_spec import own_policy
from lab.runner.fitting import check_jobs, check_runtime, try_config

SERVICES: Final = ("ps",)
"""Jobs that serve until every other job has ended, with any program."""

EVALUATOR: Final = "evaluator"

CLIENT: Final = "client"
"""The job that trains on the servers of all other jobs."""

CHIEF: Final = "chief"
"""The job that does this in a program with TensorFlow 2's coordinator."""


def own_experiment(
    spec: RunSpec, runtime: str | None, project: Project
) -> tuple[Experiment, OwnProgram]:
    """Read the user's own program, and return its experiment.

    Args:
        spec: The specification; its experiment is the path of the program.
        runtime: The runtime that the user asks for; None: the one that it needs.
        project: The project.

    Raises:
        InputError: The program does not exist or has an error, it does not fit the config, or it
            uses Horovod for PyTorch.
    """
    if spec.record:
        check_record(spec.record)
    own = read_program(
        spec.experiment,
        module=spec.module,
        listing=bool(spec.listing),
        argv=spec.args,
        jobs={name: len(job.on) for name, job in project.cluster.jobs.items()},
        nodes=project.cluster.nodes,
    )
    if "horovod.torch" in own.imports:
        raise InputError(
            f"{own.program} imports horovod.torch, but lab supports Horovod only for TensorFlow",
            "use PyTorch's DistributedDataParallel",
        )
    default = RUNTIMES[own.framework] if own.need is None else HERITAGE
    name = runtime or default.name
    horovod = own.horovod and bool(RUNTIMES[name].horovod)
    experiment = experiment_of(own, project.cluster, name, horovod=horovod)
    if own.need and (notice := own.need.notice(own.program, name, chosen=bool(runtime))):
        LOG.info(notice)
    if not runtime and own.framework != TENSORFLOW.name:
        title, used = default.title, FRAMEWORKS[own.framework]
        LOG.info(f"{own.program} imports {used.modules[0]}: it runs with {title}")
    # A program that knows its job may serve without a rank.
    if experiment.gang and not own.programs and not own.knows_job:
        check_ranks(own, experiment, project)
    if own.notice and not FRAMEWORKS[experiment.framework].has_ranks:
        LOG.warning(f"warning: {own.notice}")
    return experiment, own


def named_experiment(
    wanted: Experiment, spec: RunSpec, runtime: str | None, project: Project
) -> tuple[Experiment, OwnProgram]:
    """Return an experiment of a project or a package, and its program as the user's own.

    Args:
        wanted: The experiment.
        spec: The specification.
        runtime: The runtime that the user asks for, or None.
        project: The project.

    Raises:
        InputError: See `own_experiment`; or it does not fit the config or the runtime.
    """
    check_jobs(wanted, project)
    check_runtime(wanted, runtime)
    argv = (*wanted.args, *spec.args)
    read = replace(spec, experiment=wanted.program, args=argv)
    experiment, own = own_experiment(read, wanted.runtime, project)
    named = replace(
        experiment,
        name=wanted.name,
        args=wanted.args,
        flags=wanted.flags,
        policy=wanted.policy,
        results=wanted.results,
        origin=wanted.origin,
    )
    return named, own


def experiment_of(
    program: OwnProgram, cluster: Cluster, runtime: str, *, horovod: bool = False
) -> Experiment:
    """Return an unregistered experiment for the user's own program.

    Args:
        program: The program.
        cluster: The config.
        runtime: Its runtime.
        horovod: Whether Horovod forms a ring of its tasks.

    Raises:
        InputError: A program is for a task that does not exist, or a task has no program.
    """
    services = _services(cluster, CHIEF if program.coordinator else CLIENT)
    _check_tasks(program, cluster, services)
    framework = RUNTIMES[runtime].framework
    return Experiment(
        name=program.name,
        program=program.program,
        summary="a program of your own",
        jobs=(),
        services=services,
        runtime=runtime,
        gang=horovod or FRAMEWORKS[framework].has_ranks,
        must_talk=program.trains,
        policy=own_policy(framework),
        horovod=horovod,
    )


def _check_tasks(program: OwnProgram, cluster: Cluster, services: Sequence[str]) -> None:
    """Check that programs and tasks match if each task has its own program."""
    if not program.programs:
        return
    tasks = task_names({name: [*job.on] for name, job in cluster.jobs.items()})
    unknown = [task for task in program.programs if task not in tasks]
    if unknown:
        raise InputError(
            f"{unknown[0]}={program.programs[unknown[0]]}: environment {cluster.name!r} has"
            f" no task {unknown[0]!r}",
            f"use one of {', '.join(tasks)}",
        )
    without = [
        task
        for task in tasks
        if task not in program.programs and task.rpartition("-")[0] not in services
    ]
    if without:
        raise InputError(f"{without[0]} has no program", f"add {without[0]}=FILE.py")


def _services(cluster: Cluster, client: str) -> tuple[str, ...]:
    """Return the jobs that only serve: with a job that assigns all steps, all other jobs."""
    for job in (client, CLIENT):
        if job in cluster.jobs:
            return tuple(other for other in cluster.jobs if other != job)
    return tuple(job for job in SERVICES if job in cluster.jobs)


def check_ranks(program: OwnProgram, wanted: Experiment, project: Project) -> None:
    """Check that every task is a rank.

    Raises:
        InputError: A task has no rank. The hint names a config that fits, if there is one.
    """
    jobs = project.cluster.jobs
    idle = [job for job in jobs if job in wanted.services or job == EVALUATOR]
    if idle:
        title = "Horovod" if wanted.horovod else FRAMEWORKS[wanted.framework].title
        raise InputError(
            f"{program.program}: {title} does not give a rank to the job {idle[0]!r} of"
            f" {project.config_name}",
            try_config(EXPERIMENTS["horovod"], project.root) or "remove it from `jobs:`",
        )


def check_place(
    own: OwnProgram, plan: Plan, backend: str, root: Path, wanted: Sequence[str]
) -> tuple[str, ...]:
    """Check that the tasks have the GPUs and the packages that a program needs.

    Args:
        own: The program.
        plan: The placement of its tasks.
        backend: The name of the backend that runs them.
        root: The project's directory.
        wanted: Packages that the run brings along.

    Returns:
        Those that the tasks lack, and what they need, with versions and hashes.

    Raises:
        InputError: The tasks lack one, or a package cannot be had.
    """
    if own.gpu_use and not plan.has_gpus and len(plan.tasks) > 1:
        uses = "; ".join(map(own.place_of, own.gpu_use))
        raise InputError(
            f"{own.program} needs GPUs ({uses}), and its tasks have none",
            "use a config with GPUs, or gloo where torch.cuda.is_available() is false",
        )
    lock = _lock(wanted, plan, backend, root) if wanted else ()
    brought = folder_of(lock) if lock else None
    missing, where = _missing_modules(own, plan, backend, root)
    missing = [name for name in missing if brought is None or not has_module(brought, name)]
    if missing:
        problem = f"{own.program} imports {' and '.join(missing)}, which {where} does not have"
        folder = own.folder.resolve()
        fix = "add " + " ".join(f"--with {package_of(name)}" for name in missing)
        if any((folder.parent / name).is_dir() for name in missing):
            fix = f"start it in {folder.parent} with `lab run -m {folder.name}.{own.name}`"
        raise InputError(problem, fix)
    return lock


def _lock(wanted: Sequence[str], plan: Plan, backend: str, root: Path) -> tuple[str, ...]:
    """Download the wanted packages that the tasks lack; return them with versions and hashes."""
    if backend == CLASS:
        problem = f"a seat has no package index, so it cannot add {' and '.join(wanted)}"
        raise InputError(problem, "ask your teacher for an image that includes it")
    tasks = _tasks_python(plan, backend, root)
    lock = lock_packages(wanted, tasks)
    if lock:
        install(lock, tasks.version)
    return lock


def _tasks_python(plan: Plan, backend: str, root: Path) -> TaskPython:
    """Return the Python of the tasks: the one here, or that of their image."""
    runtime = RUNTIMES[plan.runtime]
    python = runtime.python(root)
    if not capabilities(backend).containers and python is not None:
        return TaskPython(version_of(str(python)), installed_packages(str(python)))
    locks = filter(None, (runtime.requirements(gpus=plan.has_gpus), runtime.horovod))
    texts = [(SHIPPED / f"requirements/{lock}.txt").read_text("utf-8") for lock in locks]
    return TaskPython(IMAGE_PYTHON, locked_versions("\n".join(texts)))


def _missing_modules(
    own: OwnProgram, plan: Plan, backend: str, root: Path
) -> tuple[list[str], str]:
    """Return the modules that the tasks lack, and where."""
    runtime = RUNTIMES[plan.runtime]
    # `Need` has the notice about Horovod.
    names = [name for name in packages_of(own.imports) if name != "horovod"]
    python = runtime.python(root)
    if backend == LOCAL and names and python is not None:
        missing = missing_here(str(python), base_environ(), own.folder, names)
        shown = python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python
        return missing, str(shown.parents[1])
    if backend == COMPOSE and not os.environ.get(LAB_IMAGE):
        packages = _tasks_python(plan, backend, root).installed
        return missing_in_image(packages, names), f"the image {runtime.image(gpus=plan.has_gpus)}"
    return [], ""


LIMIT_S: Final = 5.0
"""Seconds within which an expression must read all trial lines; a usual one takes milliseconds."""

_TRIAL: Final = f"""
import re, sys
pattern = re.compile(sys.argv[1])
for unit in ["a", "1", " ", "a ", "1 ", "a1 ", "=", "a=1, ", "step 1 loss 0.5 "]:
    line = unit * {LONGEST}
    for text in (line[:{LONGEST}], line[:{LONGEST - 1}] + "!", "1" + line[:{LONGEST - 2}] + "!"):
        pattern.search(text)
"""


def check_record(regex: str) -> None:
    """Check a regular expression of `--record`.

    A process of its own tries it on lines that make careless expressions slow. An expression that
    is slow only for other lines is found by the agent, which stops to use it.

    Raises:
        InputError: It is invalid, names no group or another one, or takes too long.
    """
    try:
        RecordPattern(regex)
    except PatternError as error:
        problem = f"--record {regex!r}: {error}"
        fix = f"name one of {', '.join(GROUPS)}, such as (?P<step>\\d+)"
        raise InputError(
            problem, fix if "group" in str(error) else "correct the expression"
        ) from None
    try:
        subprocess.run(
            [sys.executable, "-I", "-c", _TRIAL, regex], check=False, timeout=LIMIT_S,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(
            f"--record {regex!r} takes too long for lines of {LONGEST} characters",
            r"avoid a repetition inside a repetition, such as (\w+\s*)*",
        ) from None
