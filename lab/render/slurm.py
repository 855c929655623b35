"""Renders a config as a batch script for Slurm: the same config always gives the same bytes.

Each node of the config becomes a node of the job, so that its tasks are together. Nodes of the same
size are one component of a heterogeneous job. The script starts one agent for each task.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from lab.config import Cluster
from lab.config.diagnostics import Problem, texts
from lab.config.load import CLUSTER, parse_config, read_file
from lab.config.model import PartialCluster
from lab.config.validation import validate
from lab.errors import ConfigError, InputError
from lab.experiments.faults import parse
from lab.formatting import counted
from lab.gpu import another_host
from lab.gpu.model import Inventory
from lab.placement.place import place
from lab.placement.plan import Plan, PlannedRun, PlannedTask
from lab.render import current_text
from lab.render.planned_run import planned_run, tensorflow_version
from lab.text import short, visible
from lab.tf_versions import CURRENT, IMAGES
from lab.units import MIB

TIME_S: Final = 3600.0
"""The default time limit of a job, in seconds."""

MAX_TIME_S: Final = 365 * 86_400.0

_STATE: Final = re.compile(
    r"^# lab: target=slurm gpus=(count|none) het=(yes|no) time=(\d{1,8})"
    r" tensorflow=([0-9.]+) cluster-sha256=[0-9a-f]{64}$"
    r"(?:\n# lab: run=(.+)$)?(?:\n# lab: container=(.+)$)?",
    re.MULTILINE,
)
_MAX_HEADER: Final = 4000  # characters that are searched for the header

_SCRIPT: Final = """\
set -euo pipefail

# Variables of the submitting shell that would change the agents.
unset LAB_LEASH LAB_FORKSERVER TF_CONFIG PYTHONSAFEPATH

# The job starts in the directory in which it was submitted: the project's directory. All its files
# are below LAB_JOB_DIR, which all nodes must see.
export LAB_PROJECT={name}
export LAB_SCRIPTS="$PWD/scripts" LAB_DATA="$PWD/data"
export LAB_JOB_DIR="${{LAB_JOB_DIR:-$PWD/slurm-${{SLURM_JOB_ID:?submit this script with sbatch}}}}"
export LAB_RUNS="$LAB_JOB_DIR/runs" LAB_OUTPUT="$LAB_JOB_DIR/output"
export LAB_TENSORFLOW_VERSION={tensorflow} LAB_STAMPS=1
if [ ! -d "$LAB_SCRIPTS" ]; then
    # Slurm has started the job in /tmp, because the node does not see the project.
    echo "error: there is no $LAB_SCRIPTS on $HOSTNAME; all nodes must see the project" >&2
    exit 2
fi
mkdir -p "$LAB_RUNS" "$LAB_OUTPUT"

# The nodes' clocks may differ. The tasks take the time from the file system of this directory.
export LAB_CLOCK="$LAB_OUTPUT"

{python}
# The nodes of each component of the job, and their tasks with the number of their GPUs.
export LAB_SLURM_NODES={components}
export LAB_SLURM_JOBS={jobs}

# Slurm's nodes in the same order, and their addresses, which may be others than their names.
nodes="{lists}"
LAB_SLURM_HOSTS="$(scontrol show hostnames "$nodes")"
LAB_SLURM_ADDRESSES="$(sinfo --noheader --Node --nodes="$nodes" --format="%N %o")"
export LAB_SLURM_HOSTS LAB_SLURM_ADDRESSES
LAB_CLUSTER="$("${{python[@]}}" -P -m lab.task.agent.slurm)"
export LAB_CLUSTER
echo "lab: cluster spec $LAB_CLUSTER"

# One agent for each task.
srun --mpi=none --kill-on-bad-exit=0 \\
{steps} &
agents=$!

# A minute before the time limit, the run saves and ends.
trap '"${{python[@]}}" -P -m lab.task.agent.slurm end || true' USR1
"""
_PYTHON: Final = """\
# The Python of all tasks, with lab from the project's directory.
export PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}"
python=("${{LAB_PYTHON:-$PWD/{environment}/bin/python}}")
if ! command -v "${{python[0]}}" >/dev/null; then
    echo "error: there is no ${{python[0]}} on $HOSTNAME; make it, or set LAB_PYTHON" >&2
    exit 2
fi
"""
_CONTAINER: Final = """\
# The Python of all tasks is that of the image, with lab from the project's directory. The image
# gets the variables of the job, but neither packages of the host nor those in the home directory.
# Its own variables have precedence, except over those that start with APPTAINERENV.
image={image}
if [ ! -r "$image" ]; then
    echo "error: there is no image $image on $HOSTNAME; copy it to where all nodes see it" >&2
    exit 2
elif ! command -v apptainer >/dev/null; then
    echo "error: there is no apptainer on $HOSTNAME; load its module before sbatch" >&2
    exit 2
fi
export APPTAINERENV_PYTHONPATH="$PWD" APPTAINERENV_PYTHONNOUSERSITE=1
python=(apptainer exec{nv} --bind "$PWD" --bind "$LAB_JOB_DIR" "$image" python3)
"""
_WAIT: Final = """
# The agents wait for runs until the job ends. A signal ends `wait`, too.
while kill -0 "$agents" 2>/dev/null; do
    wait "$agents" || true
done
"""
_RUN: Final = """
# The run. The job ends with it, or when the agents have ended. A signal ends `wait`, too.
export LAB_RUN={run}
export LAB_RUN_TERMS={terms}
LAB_ONCE=1 "${{python[@]}}" -P -m lab.task.agent.autorun &
run=$!
status=0
while kill -0 "$agents" 2>/dev/null && kill -0 "$run" 2>/dev/null; do
    wait -n "$agents" "$run" && status=0 || status=$?
done
if kill "$run" 2>/dev/null; then
    echo "lab: the agents ended before the run" >&2
    status=1
fi
scancel --quiet --signal=HUP "$SLURM_JOB_ID" || true
wait "$agents" || true
exit "$status"
"""


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """The options of a batch script, in addition to its config.

    Attributes:
        gpus: Whether to request GPUs.
        het: Whether to request a heterogeneous job if the nodes have different sizes.
        time_s: The time limit of the job, in seconds.
        tensorflow: The TensorFlow version of its tasks; None: the run's, or the current one.
        run: The value of `--run` with its flags; "": the config's run.
        container: The Apptainer image of its tasks, a path; relative ones start at the project's
            directory. "": the project's virtual environment.
    """

    gpus: bool = True
    het: bool = True
    time_s: float = TIME_S
    tensorflow: str | None = None
    run: str = ""
    container: str = ""


SLURM_DEFAULTS: Final = SlurmOptions()


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes of a job with the same size.

    Attributes:
        nodes: The tasks of each node, by its name.
        tasks: The most tasks on one of them.
        cpus: CPUs of each task, or None for the site's default.
        memory_mib: Memory of each node in MiB, or None for the site's default.
        gpus: GPUs of each node.
    """

    nodes: tuple[tuple[str, tuple[PlannedTask, ...]], ...]
    tasks: int
    cpus: int | None
    memory_mib: int | None
    gpus: int

    def options(self) -> str:
        """Return the options of `sbatch` and `srun` for its size."""
        nodes = len(self.nodes)
        options = [
            f"--nodes={nodes}",
            # Without it, Slurm 24.11 starts as many tasks as the first component of a job has.
            f"--ntasks={nodes * self.tasks}",
            f"--ntasks-per-node={self.tasks}",
        ]
        if self.cpus is not None:
            options.append(f"--cpus-per-task={self.cpus}")
        if self.memory_mib is not None:
            options.append(f"--mem={self.memory_mib}M")
        if self.gpus:
            options.append(f"--gpus-per-node={self.gpus}")
        return " ".join(options)


def unsupported(parts: Cluster | PartialCluster, *, gpus: bool) -> Iterator[Problem]:
    """Yield a problem for each value of a config that a Slurm job cannot have.

    Args:
        parts: The config, or its valid parts.
        gpus: Whether the job gets GPUs.
    """
    for name, link in parts.links.items():
        if link is not None:
            yield Problem(("links", name), "a Slurm job cannot change the network; leave it out")
    for index, text in enumerate(parts.faults):
        if text is not None and parse(text).kind.on_network:
            message = "a Slurm job cannot change the network; leave out this fault"
            yield Problem(("faults", index), message)
    if not gpus:
        return
    for name, job in parts.jobs.items():
        if job is not None and job.share:
            message = "a Slurm job gets whole GPUs; give each task its own, with `gpus: 1`"
            yield Problem(("jobs", name, "share"), message)
        elif job is not None and job.gpu_memory_fraction is not None:
            message = "a Slurm job gets whole GPUs; leave it out"
            yield Problem(("jobs", name, "gpu_memory_fraction"), message)


def load_for_slurm(path: Path, *, gpus: bool) -> Cluster:
    """Read a config for a Slurm job.

    Args:
        path: The file.
        gpus: Whether the job gets GPUs.

    Raises:
        InputError: The file cannot be read.
        ConfigError: The config is invalid, or has values that a Slurm job cannot have.
    """

    def rules(parts: Cluster | PartialCluster) -> Iterator[Problem]:
        yield from validate(parts)
        yield from unsupported(parts, gpus=gpus)

    return parse_config(replace(CLUSTER, rules=rules), read_file(path, CLUSTER.fix), str(path))


def plan_for_slurm(cluster: Cluster, *, gpus: bool, tensorflow: str = CURRENT.tensorflow) -> Plan:
    """Place a config on nodes that Slurm selects: its GPUs, CPUs and memory are only numbers.

    A list of GPUs counts as its number, with a notice.

    Args:
        cluster: The config.
        gpus: Whether the job gets GPUs.
        tensorflow: The TensorFlow version of the tasks.

    Raises:
        ConfigError: The config has values that a Slurm job cannot have.
    """
    if problems := texts(unsupported(cluster, gpus=gpus)):
        raise ConfigError(problems)
    nowhere = Inventory("none", (), None, None)
    inventory = another_host(cluster.gpus_needed) if gpus else nowhere
    plan = place(cluster.with_gpu_counts(), inventory)
    lists = [
        f"nodes.{name}.gpus: Slurm selects the GPUs; the list counts as"
        f" {counted(node.gpu_count, 'GPU')}"
        for name, node in cluster.nodes.items()
        if gpus and node.pins
    ]
    return replace(
        plan,
        tensorflow=tensorflow,
        cluster_sha256=cluster.sha256,
        notices=(*plan.notices, *lists),
    )


def components_of(plan: Plan, *, het: bool) -> list[Component]:
    """Divide the nodes of a plan into components. Nodes without tasks are left out.

    Args:
        plan: The plan.
        het: Whether to make a component for each size; otherwise one has the largest size.
    """
    tasks: dict[str, list[PlannedTask]] = {node.name: [] for node in plan.nodes}
    for task in plan.tasks:
        tasks[task.node].append(task)
    single = [_component([(name, tuple(own))]) for name, own in tasks.items() if own]
    sizes: dict[str, list[Component]] = {}
    for component in single:
        sizes.setdefault(component.options() if het else "", []).append(component)
    return [_component([component.nodes[0] for component in same]) for same in sizes.values()]


def _component(nodes: Sequence[tuple[str, tuple[PlannedTask, ...]]]) -> Component:
    tasks = [own for _, own in nodes]
    each = [task for own in tasks for task in own]
    cpus = [math.ceil(task.cpus) for task in each if task.cpus is not None]
    memory = [sum(task.memory_bytes or 0 for task in own) for own in tasks]
    return Component(
        nodes=tuple(nodes),
        tasks=max(map(len, tasks)),
        cpus=max(cpus) if cpus else None,
        memory_mib=math.ceil(max(memory) / MIB) or None,
        gpus=max(sum(len(task.gpus) for task in own) for own in tasks),
    )


def render_slurm_file(
    path: Path,
    options: SlurmOptions,
    *,
    relative_to: Path = Path(),
    notify: Callable[[str], None] = lambda _: None,
) -> str:
    """Render a config as a batch script.

    Args:
        path: The config.
        options: The options.
        relative_to: The directory of the script, for the path of the config in its header.
        notify: Receives the notices of the plan.

    Raises:
        LabError: The config cannot be read, has errors, or has values that a Slurm job cannot have.
    """
    cluster = load_for_slurm(path, gpus=options.gpus)
    run = planned_run(cluster, options.run)
    version = tensorflow_version(run, options.tensorflow, CURRENT.tensorflow)
    plan = plan_for_slurm(cluster, gpus=options.gpus, tensorflow=version)
    for notice in plan.notices:
        notify(notice)
    name = os.path.relpath(path.absolute(), relative_to.absolute())
    return render_slurm(plan, run, options, cluster_file=Path(name).as_posix())


def render_slurm(
    plan: Plan, run: PlannedRun | None, options: SlurmOptions, *, cluster_file: str
) -> str:
    """Render a plan as a batch script.

    Args:
        plan: The plan; see `plan_for_slurm`.
        run: The run that the job trains; None: its tasks wait for runs.
        options: The options; the plan has the final TensorFlow version.
        cluster_file: The path of its config, for the header.
    """
    components = components_of(plan, het=options.het)
    nodes = [
        [[name, {task.name: len(task.gpus) for task in own}] for name, own in each.nodes]
        for each in components
    ]
    het = len(components) > 1
    groups = [f"_HET_GROUP_{number}" for number in range(len(components))] if het else [""]
    text = _SCRIPT.format(
        name=plan.name,
        tensorflow=plan.tensorflow,
        python=_python(plan, options.container),
        components=shlex.quote(json.dumps(nodes)),
        lists=",".join(f"$SLURM_JOB_NODELIST{group}" for group in groups),
        jobs=shlex.quote(" ".join(dict.fromkeys(task.job for task in plan.tasks))),
        steps=" : \\\n".join(
            f"    {f'--het-group={number} ' if het else ''}{component.options()}"
            f' "${{python[@]}}" -P -m lab.task.agent.slurm {number}'
            for number, component in enumerate(components)
        ),
    )
    end = _WAIT
    if run is not None:
        terms = json.dumps({"start": dict(run.start), "faults": list(run.faults)})
        end = _RUN.format(run=shlex.quote(shlex.join(run.arguments)), terms=shlex.quote(terms))
    return _header(plan, components, run, options, cluster_file) + text + end


def _python(plan: Plan, container: str) -> str:
    """The lines that set the Python of the tasks."""
    if not container:
        return _PYTHON.format(environment=IMAGES[plan.tensorflow].environment or ".venv")
    # A path that starts with a slash is no option of a command, whatever its name is.
    start = "" if container.startswith("/") else '"$PWD"/'
    nv = " --nv" if any(task.gpus for task in plan.tasks) else ""
    return _CONTAINER.format(image=start + shlex.quote(container), nv=nv)


def _header(
    plan: Plan,
    components: Sequence[Component],
    run: PlannedRun | None,
    options: SlurmOptions,
    cluster_file: str,
) -> str:
    file = visible(cluster_file)
    does = f"trains {short(shlex.join(run.arguments))}" if run else "boots the cluster for runs"
    requests = "#SBATCH hetjob\n".join(
        f"# {short(', '.join(name for name, _ in component.nodes))}\n"
        f"#SBATCH --job-name={plan.name} --time={slurm_time(options.time_s)} --requeue"
        f" --signal=B:USR1@{min(60, options.time_s / 2):.0f}\n"
        f"#SBATCH {component.options()}\n"
        for component in components
    )
    return (
        "#!/bin/bash\n"
        f"# Rendered from {file} by `python -m lab render --target slurm`; do not edit.\n"
        f"# Change {file} and render again. `--check` compares.\n"
        "#\n"
        f"# sbatch FILE     in the project's directory: {does}\n"
        "#\n"
        f"# lab: target=slurm gpus={'count' if options.gpus else 'none'}"
        f" het={'yes' if options.het else 'no'} time={options.time_s:.0f}"
        f" tensorflow={plan.tensorflow} cluster-sha256={plan.cluster_sha256}\n"
        + (f"# lab: run={options.run}\n" if options.run else "")
        + (f"# lab: container={visible(options.container)}\n" if options.container else "")
        + f"\n{requests}\n"
    )


def slurm_time(seconds: float) -> str:
    """Return a time limit in Slurm's form, `1-02:00:00`, rounded up to minutes."""
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"


def time_limit(seconds: float) -> float:
    """Check a time limit.

    Raises:
        InputError: It is shorter than a minute, or longer than a year.
    """
    if not 60 <= seconds <= MAX_TIME_S:  # noqa: PLR2004
        raise InputError("--time: the limit is from one minute to 365 days", "write 2h, or 1d12h")
    return float(math.ceil(seconds))


def container_image(path: str) -> str:
    """Check the path of an image. The file may be on the cluster only.

    Raises:
        InputError: It is the address of a registry, or it has control characters.
    """
    if "://" in path or not path.isprintable():
        hint = "make one with `apptainer build lab.sif`, and write its path"
        raise InputError(f"--container: {short(visible(path))} is not a file", hint)
    return path


def slurm_options(path: Path) -> SlurmOptions | None:
    """Return the options of a batch script, by its header; None if file or header is missing."""
    state = _STATE.search(current_text(path)[:_MAX_HEADER])
    if state is None:
        return None
    gpus, het, time_s, *texts = state.groups(default="")
    return SlurmOptions(gpus == "count", het == "yes", float(time_s), *texts)
