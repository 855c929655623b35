"""Whether an experiment fits a config, and has its program."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.experiments.registry import EXPERIMENTS, Experiment
from lab.formatting import counted
from lab.frameworks import FRAMEWORKS
from lab.program.python_source import Sources
from lab.project import DEFAULT_CLUSTER, SCRIPTS, Project
from lab.shipped import SHIPPED
from lab.text import short, suggestion
from lab.volume import RunSpec
from lab.volume.run_spec import PLACEHOLDER


def experiment_named(name: str) -> Experiment:
    """Return the experiment of this name.

    Raises:
        InputError: The experiment does not exist.
    """
    experiment = EXPERIMENTS.get(name)
    if experiment is None:
        hint = suggestion(name, EXPERIMENTS)
        raise InputError(
            f"no experiment {name!r}",
            f"{hint}see `lab experiments`; run your own program by its path, such as {name}.py",
        )
    return experiment


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
            fix = "use {index}" if match[1] else f"its tasks are {short(', '.join(tasks))}"
            raise InputError(f"{match[0]}: the run has no {name}", fix)


def check_jobs(wanted: Experiment, project: Project) -> None:
    """Check that the cluster has exactly the jobs that the experiment needs.

    Raises:
        InputError: A job is missing, unused, or has the wrong number of tasks. The hint names a
            config that fits, if there is one.
    """
    cluster, config = project.cluster, project.config_name
    missing = [job for job in wanted.jobs if job not in cluster.jobs]
    idle = [job for job in cluster.jobs if job not in wanted.jobs]
    miscounted = _miscounted(wanted, cluster)
    if not missing and not idle and not miscounted:
        return
    if missing:
        problem = f"needs the job {missing[0]!r}, which {config} lacks"
        fix = "add it under `jobs:`"
    elif miscounted:
        job, count = miscounted[0], wanted.counts[miscounted[0]]
        tasks = len(cluster.jobs[job].on)
        problem = f"needs {counted(count, 'task')} of the job {job!r}, but {config} has {tasks}"
        fix = "change the job under `jobs:`"
    else:
        problem = f"cannot use the job {idle[0]!r} of {config}"
        fix = "remove it from `jobs:`"
    raise InputError(
        f"experiment {wanted.name!r} {problem}", try_config(wanted, project.root) or fix
    )


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
    """Return a path as `--cluster` takes it here; a shipped config is found by its name, too."""
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    name = path.relative_to(SHIPPED) if path.is_relative_to(SHIPPED) else path
    return str(path if name.exists() else name)
