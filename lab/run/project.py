"""The project's directory, the description in it, and what an experiment needs of both."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.run.program import OwnProgram, user_path
from lab.run.python_source import check_syntax
from lab.task.protocol.experiments import EXPERIMENTS, Experiment
from lab.task.text import suggestion

DEFAULT_CLUSTER: Final = "cluster.yaml"
SCRIPTS: Final = "scripts"
DATA: Final = "data"
SERVICES: Final = ("ps",)
"""Jobs that serve until every other job has ended, whatever the program."""

CLIENT: Final = "client"
"""A job that trains on the servers of all others."""


def cluster_path(given: str | None, argument: str | None = None) -> Path:
    """The description that is meant: the flag's, or `cluster.yaml` in this directory.

    Args:
        given: The value of `--cluster`.
        argument: The file that the command line names without the flag, where a command allows it.

    Raises:
        InputError: There is none, or both are given and differ.
    """
    if given is not None and argument is not None and _real(given) != _real(argument):
        raise InputError(
            f"two descriptions are given: {argument} and --cluster {given}", "leave out one of them"
        )
    given = argument if given is None else given
    path = Path(given or DEFAULT_CLUSTER)
    if given is None and not path.exists():
        raise InputError(
            f"no {DEFAULT_CLUSTER} in {Path.cwd()}",
            "go to the project's directory, or name a description with --cluster",
        )
    return path


def _real(path: str | Path) -> str:
    """The path without links; pathlib raises where one leads to itself."""
    return os.path.realpath(path)


def default_name() -> str | None:
    """The name in this directory's description; None when there is none, or it is not valid."""
    try:
        return load_cluster(Path(DEFAULT_CLUSTER)).name
    except (InputError, OSError):
        return None


def find_root(description: Path) -> Path:
    """The project's directory: the nearest one above the description that holds `scripts/`.

    Raises:
        InputError: There is none.
    """
    for folder in description.resolve().parents:
        if (folder / SCRIPTS).is_dir():
            return folder
    raise InputError(
        f"no {SCRIPTS}/ beside {description} or above it",
        "keep the description in a project's directory",
    )


def experiment(name: str) -> Experiment:
    """The experiment of this name.

    Raises:
        InputError: There is none.
    """
    found = EXPERIMENTS.get(name)
    if found is None:
        hint = suggestion(name, EXPERIMENTS)
        raise InputError(
            f"no experiment {name!r}",
            f"{hint}see `lab experiments`; a program of your own is named by its path, {name}.py",
        )
    return found


def experiment_of(program: OwnProgram, cluster: Cluster, tensorflow: str) -> Experiment:
    """A program of one's own, on this TensorFlow, as an experiment that no registry has.

    Raises:
        InputError: It is for a task that the cluster lacks, or a task that is no service has none.
    """
    services = _services(cluster)
    _check_tasks(program, cluster, services)
    return Experiment(
        name=program.name,
        program=program.program,
        summary="a program of your own",
        jobs=(),
        services=services,
        tensorflow=tensorflow,
    )


def _check_tasks(program: OwnProgram, cluster: Cluster, services: Sequence[str]) -> None:
    """See that programs and tasks fit, where each task has a program of its own."""
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
            f"its tasks are {', '.join(tasks)}",
        )
    without = [
        task
        for task in tasks
        if task not in program.programs and task.rpartition("-")[0] not in services
    ]
    if without:
        raise InputError(f"{without[0]} has no program", f"add {without[0]}=FILE.py")


def _services(cluster: Cluster) -> tuple[str, ...]:
    """The jobs that only serve: where a client trains, all others do."""
    if CLIENT in cluster.jobs:
        return tuple(job for job in cluster.jobs if job != CLIENT)
    return tuple(job for job in SERVICES if job in cluster.jobs)


def check_jobs(wanted: Experiment, cluster: Cluster, description: Path, root: Path) -> None:
    """See that the cluster has every job that the experiment needs, and none that it cannot use.

    Raises:
        InputError: One is missing, or too many; a description that fits is named.
    """
    missing = [job for job in wanted.jobs if job not in cluster.jobs]
    idle = [job for job in cluster.jobs if job not in wanted.jobs]
    miscounted = _miscounted(wanted, cluster)
    if not missing and not idle and not miscounted:
        return
    first = [root / wanted.cluster] if wanted.cluster else []
    among = [*first, *_descriptions(root)]
    fitting = next((path for path in among if _fits(path, wanted)), None)
    if missing:
        what = f"needs the job {missing[0]!r}, which {description} lacks"
        fix = "add it under `jobs:`"
    elif miscounted:
        job, count = miscounted[0], wanted.counts[miscounted[0]]
        there = len(cluster.jobs[job].on)
        what = f"needs {count} of the job {job!r}, and {description} has {there}"
        fix = "change it under `jobs:`"
    else:
        what = f"has no use for the job {idle[0]!r} of {description}"
        fix = "take it out of `jobs:`"
    fix = f"try --cluster {_relative(fitting)}" if fitting else fix
    raise InputError(f"experiment {wanted.name!r} {what}", fix)


def check_program(wanted: Experiment, root: Path) -> None:
    """See that the experiment's program is there and is Python, before anything starts.

    Raises:
        InputError: It is missing, unreadable, or it or a module beside it that it imports has a
            syntax error.
    """
    path = root / SCRIPTS / wanted.program
    if not path.exists():
        raise InputError(
            f"the program of experiment {wanted.name!r}, {path}, is missing", "put it there"
        )
    check_syntax(path)


def check_data_dir(given: str | None, wanted: Experiment | None = None) -> Path | None:
    """The directory with a student's own data, absolute, or None.

    Args:
        given: As it was typed.
        wanted: The experiment that is to read it, if it is for one.

    Raises:
        InputError: It is no directory, or it cannot be read, or the experiment reads none.
    """
    if given is None:
        return None
    if wanted is not None and not wanted.has_data:
        raise InputError(f"experiment {wanted.name!r} reads no data", "leave out --data_dir")
    path = Path(_real(user_path(given)))
    if not path.is_dir():
        raise InputError(f"--data_dir: {given} is no directory", "name the one with the IDX files")
    if not os.access(path, os.R_OK | os.X_OK):
        raise InputError(f"--data_dir: {given} cannot be read", "mend its permissions")
    return path


def data_dir_inside(path: Path | None, backend: str, root: Path) -> str:
    """The same directory as a task sees it; "" for the data that is shipped.

    Raises:
        InputError: A container cannot see it.
    """
    if path is None:
        return ""
    if backend != "compose":
        return str(path)
    data = (root / DATA).resolve()
    if not path.is_relative_to(data):
        raise InputError(
            f"--data_dir: containers see only what lies in {data}, and {path} does not",
            "move it there, or use --backend local",
        )
    return str(Path("/lab") / DATA / path.relative_to(data))


def _descriptions(root: Path) -> Sequence[Path]:
    return [root / DEFAULT_CLUSTER, *sorted((root / "clusters").glob("*.yaml"))]


def _miscounted(wanted: Experiment, cluster: Cluster) -> list[str]:
    """The jobs that do not have as many tasks as the experiment needs."""
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
