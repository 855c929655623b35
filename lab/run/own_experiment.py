"""The experiment that a user's own program makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.config import Cluster
from lab.errors import InputError
from lab.experiments.registry import EXPERIMENTS, Experiment
from lab.program.own import OwnProgram
from lab.run.fitting import try_config

SERVICES: Final = ("ps",)
"""Jobs that serve until every other job has ended, with any program."""

EVALUATOR: Final = "evaluator"

CLIENT: Final = "client"
"""The job that trains on the servers of all other jobs."""

CHIEF: Final = "chief"
"""The job that does this in a program with TensorFlow 2's coordinator."""


def experiment_of(
    program: OwnProgram, cluster: Cluster, tensorflow: str, *, horovod: bool = False
) -> Experiment:
    """Return an unregistered experiment for the user's own program.

    Args:
        program: The program.
        cluster: The config.
        tensorflow: The TensorFlow version.
        horovod: Whether Horovod forms a ring of its tasks.

    Raises:
        InputError: A program is for a task that does not exist, or a task has no program.
    """
    services = _services(cluster, CHIEF if program.coordinator else CLIENT)
    _check_tasks(program, cluster, services)
    return Experiment(
        name=program.name,
        program=program.program,
        summary="a program of your own",
        jobs=(),
        services=services,
        tensorflow=tensorflow,
        gang=horovod,
        horovod=horovod,
    )


def _check_tasks(program: OwnProgram, cluster: Cluster, services: Sequence[str]) -> None:
    """Check that programs and tasks match if each task has its own program."""
    if not program.programs:
        return
    tasks = [
        f"{job}-{index}" for job, each in cluster.jobs.items() for index in range(len(each.on))
    ]
    unknown = [task for task in program.programs if task not in tasks]
    if unknown:
        raise InputError(
            f"{unknown[0]}={program.programs[unknown[0]].program}: environment {cluster.name!r} has"
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
            return tuple(each for each in cluster.jobs if each != job)
    return tuple(job for job in SERVICES if job in cluster.jobs)


def check_ranks(
    program: OwnProgram, wanted: Experiment, cluster: Cluster, config: str, root: Path
) -> None:
    """Check that every task is one of Horovod's ranks.

    Raises:
        InputError: A task has no rank. The hint names a config that fits, if there is one.
    """
    idle = [job for job in cluster.jobs if job in wanted.services or job == EVALUATOR]
    if idle:
        raise InputError(
            f"{program.program}: Horovod gives no rank to the job {idle[0]!r} of {config}",
            try_config(EXPERIMENTS["horovod"], root) or "remove it from `jobs:`",
        )
