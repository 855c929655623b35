"""The project's directory and config, and checks that an experiment fits them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.experiments.registry import EXPERIMENTS, Experiment
from lab.formatting import counted
from lab.program.own import OwnProgram, user_path
from lab.program.python_source import Sources
from lab.text import suggestion

DEFAULT_CLUSTER: Final = "cluster.yaml"
SCRIPTS: Final = "scripts"
SERVICES: Final = ("ps",)
"""Jobs that serve until every other job has ended, with any program."""

EVALUATOR: Final = "evaluator"

CLIENT: Final = "client"
"""The job that trains on the servers of all other jobs."""

CHIEF: Final = "chief"
"""The job that does this in a program with TensorFlow 2's coordinator."""


def cluster_path(given: str | None, argument: str | None = None) -> Path:
    """Return the path of the config: the one of the flag, or `cluster.yaml` in this directory.

    Args:
        given: The value of `--cluster`.
        argument: The file that the command line names without the flag, if the command allows it.

    Raises:
        InputError: There is no config, or both are given and differ.
    """
    if given is not None and argument is not None and _real(given) != _real(argument):
        raise InputError(
            f"two configs are given: {argument} and --cluster {given}", "leave out one of them"
        )
    given = argument if given is None else given
    path = Path(given or DEFAULT_CLUSTER)
    if given is None and not path.exists():
        raise InputError(
            f"no {DEFAULT_CLUSTER} in {Path.cwd()}",
            "change to the project's directory, or name a config with --cluster",
        )
    return path


def _real(path: str | Path) -> str:
    """Return the path without links; pathlib would raise for a link that leads to itself."""
    return os.path.realpath(path)


def default_name() -> str | None:
    """Return the name in this directory's config; None if the config is missing or invalid."""
    try:
        return load_cluster(Path(DEFAULT_CLUSTER)).name
    except (InputError, OSError):
        return None


def find_root(config: Path) -> Path:
    """Return the project's directory: the nearest one above the config with a `scripts/`.

    Raises:
        InputError: No directory above the config has a `scripts/`.
    """
    for folder in config.resolve().parents:
        if (folder / SCRIPTS).is_dir():
            return folder
    raise InputError(
        f"no {SCRIPTS}/ in the directory of {config} or above it",
        "move the config into a project's directory",
    )


def experiment(name: str) -> Experiment:
    """Return the experiment of this name.

    Raises:
        InputError: The experiment does not exist.
    """
    found = EXPERIMENTS.get(name)
    if found is None:
        hint = suggestion(name, EXPERIMENTS)
        raise InputError(
            f"no experiment {name!r}",
            f"{hint}see `lab experiments`; run your own program by its path, such as {name}.py",
        )
    return found


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


def check_jobs(wanted: Experiment, cluster: Cluster, config: Path, root: Path) -> None:
    """Check that the cluster has exactly the jobs that the experiment needs.

    Raises:
        InputError: A job is missing, unused, or has the wrong number of tasks. The hint names a
            config that fits, if there is one.
    """
    missing = [job for job in wanted.jobs if job not in cluster.jobs]
    idle = [job for job in cluster.jobs if job not in wanted.jobs]
    miscounted = _miscounted(wanted, cluster)
    if not missing and not idle and not miscounted:
        return
    if missing:
        what = f"needs the job {missing[0]!r}, which {config} lacks"
        fix = "add it under `jobs:`"
    elif miscounted:
        job, count = miscounted[0], wanted.counts[miscounted[0]]
        found = len(cluster.jobs[job].on)
        what = f"needs {counted(count, 'task')} of the job {job!r}, but {config} has {found}"
        fix = "change the job under `jobs:`"
    else:
        what = f"cannot use the job {idle[0]!r} of {config}"
        fix = "remove it from `jobs:`"
    raise InputError(f"experiment {wanted.name!r} {what}", _try_config(wanted, root) or fix)


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
            _try_config(EXPERIMENTS["horovod"], root) or "remove it from `jobs:`",
        )


def _try_config(wanted: Experiment, root: Path) -> str:
    """Return the hint that names a config with an experiment's jobs; "" if there is none."""
    first = [root / wanted.cluster] if wanted.cluster else []
    fitting = next((path for path in [*first, *_configs(root)] if _fits(path, wanted)), None)
    return f"try --cluster {_relative(fitting)}" if fitting else ""


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


def check_data_dir(given: str | None, wanted: Experiment | None = None) -> Path | None:
    """Return the absolute path of the user's own data directory, or None.

    Args:
        given: The path that the user typed, or None.
        wanted: The experiment that must read the data, or None.

    Raises:
        InputError: The path is not a directory or cannot be read, or the experiment reads no data.
    """
    if given is None:
        return None
    if wanted is not None and not wanted.has_data:
        raise InputError(f"experiment {wanted.name!r} reads no data", "leave out --data_dir")
    path = Path(_real(user_path(given)))
    if not path.is_dir():
        raise InputError(
            f"--data_dir: {given} is not a directory", "name the directory with the IDX files"
        )
    if not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"--data_dir: {given} cannot be read", "change its permissions")
    return path


def _configs(root: Path) -> Sequence[Path]:
    return [root / DEFAULT_CLUSTER, *sorted((root / "clusters").glob("*.yaml"))]


def _miscounted(wanted: Experiment, cluster: Cluster) -> list[str]:
    """Return the jobs whose number of tasks is not the one that the experiment needs."""
    return [
        job
        for job, count in wanted.counts.items()
        if job in cluster.jobs and len(cluster.jobs[job].on) != count
    ]


def _fits(path: Path, wanted: Experiment) -> bool:
    try:
        cluster = load_cluster(path)
        return set(cluster.jobs) == set(wanted.jobs) and not _miscounted(wanted, cluster)
    except (InputError, OSError):
        return False


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
