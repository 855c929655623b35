"""Renders a plan as a batch script for Slurm: the same plan always gives the same bytes.

The script starts one agent for each task.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.backends.options import Values
from lab.backends.rendered_file import Rendering, header
from lab.backends.slurm import NAME
from lab.base.text import short
from lab.base.units import MIB
from lab.cluster.placement.plan import Plan, PlannedTask
from lab.protocol.runtimes import RUNTIMES

Nodes = tuple[tuple[str, tuple[PlannedTask, ...]], ...]
"""The names of nodes, each with its tasks."""


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes of a job with the same size.

    Each node of the config becomes a node of the job, so that its tasks are together. Nodes of the
    same size are one component of a heterogeneous job.

    Attributes:
        size: The options of `sbatch` and `srun` for one node.
        nodes: The nodes.
    """

    size: str
    nodes: Nodes

    def options(self) -> str:
        """Return the options of `sbatch` and `srun` for it."""
        count = sum(len(tasks) for _, tasks in self.nodes)
        # Without `--ntasks`, Slurm 24.11 starts as many tasks as the first component of a job has.
        return f"--nodes={len(self.nodes)} --ntasks={count} {self.size}"


def components_of(plan: Plan) -> list[Component]:
    """Return a component for each size of node. Nodes without tasks are left out."""
    sizes: dict[str, Nodes] = {}
    for node in plan.nodes:
        if tasks := tuple(task for task in plan.tasks if task.node == node.name):
            size = _size(tasks)
            sizes[size] = (*sizes.get(size, ()), (node.name, tasks))
    return [Component(size, nodes) for size, nodes in sizes.items()]


def _size(tasks: Sequence[PlannedTask]) -> str:
    """The options for a node with these tasks; what is not requested is the site's default."""
    options = [f"--ntasks-per-node={len(tasks)}"]
    if cpus := [math.ceil(task.cpus) for task in tasks if task.cpus is not None]:
        options.append(f"--cpus-per-task={max(cpus)}")
    if memory := sum(task.memory_bytes or 0 for task in tasks):
        options.append(f"--mem={math.ceil(memory / MIB)}M")
    if gpus := sum(len(task.gpus) for task in tasks):
        options.append(f"--gpus-per-node={gpus}")
    return " ".join(options)


_SCRIPT: Final = """\
set -euo pipefail

# Variables of the submitting shell that would change the agents.
unset TF_CONFIG PYTHONSAFEPATH

# The job starts in the directory in which it was submitted: the project's directory. All its files
# are below LAB_JOB_DIR, which all nodes must see.
export LAB_PROJECT={name}
export LAB_SCRIPTS="$PWD/scripts" LAB_DATA="$PWD/data"
export LAB_JOB_DIR="${{LAB_JOB_DIR:-$PWD/slurm-${{SLURM_JOB_ID:?submit this script with sbatch}}}}"
export LAB_RUNS="$LAB_JOB_DIR/runs" LAB_OUTPUT="$LAB_JOB_DIR/output"
export LAB_RUNTIME={runtime}
if [ ! -d "$LAB_SCRIPTS" ]; then
    # Slurm has started the job in /tmp, because the node does not see the project.
    echo "error: there is no $LAB_SCRIPTS on $HOSTNAME; all nodes must see the project" >&2
    exit 2
fi
mkdir -p "$LAB_RUNS" "$LAB_OUTPUT"

# The nodes' clocks may differ. The tasks take the time from the file system of this directory.
export LAB_CLOCK="$LAB_OUTPUT"

# The Python of all tasks, with lab from the project's directory.
export PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}"
python=("${{LAB_PYTHON:-$PWD/{environment}/bin/python}}")
if ! command -v "${{python[0]}}" >/dev/null; then
    echo "error: there is no ${{python[0]}} on $HOSTNAME; make it, or set LAB_PYTHON" >&2
    exit 2
fi

# The nodes of each component of the job, and their tasks with the number of their GPUs.
export LAB_SLURM_NODES={components}

# Slurm's nodes in the same order, and their addresses, which may be others than their names.
nodes="{lists}"
hosts="$(scontrol show hostnames "$nodes")"
addresses="$(sinfo --noheader --Node --nodes="$nodes" --format="%N %o")"
LAB_CLUSTER="$("${{python[@]}}" -P -m lab.task.agent.slurm cluster "$hosts" "$addresses" {jobs})"
export LAB_CLUSTER
echo "lab: cluster spec $LAB_CLUSTER"

# One agent for each task.
srun --mpi=none --kill-on-bad-exit=0 \\
{steps} &
agents=$!

# A minute before the time limit, the run saves and ends.
trap '"${{python[@]}}" -P -m lab.task.agent.slurm end || true' USR1
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


def render(plan: Plan, options: Values, rendering: Rendering) -> str:
    """Render a plan as a batch script.

    Args:
        plan: The plan, with the final TensorFlow version.
        options: The options.
        rendering: The run, and the path of the config.
    """
    run = rendering.run
    components = components_of(plan)
    nodes = [
        [[name, {task.name: len(task.gpus) for task in own}] for name, own in component.nodes]
        for component in components
    ]
    het = len(components) > 1
    groups = [f"_HET_GROUP_{number}" for number in range(len(components))] if het else [""]
    text = _SCRIPT.format(
        name=plan.name,
        runtime=plan.runtime,
        environment=RUNTIMES[plan.runtime].environment or ".venv",
        components=shlex.quote(json.dumps(nodes)),
        lists=",".join(f"$SLURM_JOB_NODELIST{group}" for group in groups),
        jobs=" ".join(dict.fromkeys(task.job for task in plan.tasks)),
        steps=" : \\\n".join(
            f"    {f'--het-group={number} ' if het else ''}{component.options()}"
            f' "${{python[@]}}" -P -m lab.task.agent.slurm {number}'
            for number, component in enumerate(components)
        ),
    )
    end = _WAIT
    if run is not None:
        end = _RUN.format(run=shlex.quote(run.command), terms=shlex.quote(run.terms))
    return _header(plan, components, options, rendering) + text + end


def _header(
    plan: Plan, components: Sequence[Component], options: Values, rendering: Rendering
) -> str:
    time_s = float(options["time"])
    requests = "#SBATCH hetjob\n".join(
        f"# {short(', '.join(name for name, _ in component.nodes))}\n"
        f"#SBATCH --job-name={plan.name} --time={slurm_time(time_s)} --requeue"
        f" --signal=B:USR1@{min(60, time_s / 2):.0f}\n"
        f"#SBATCH {component.options()}\n"
        for component in components
    )
    usage = f"sbatch FILE     in the project's directory: {rendering.does}"
    return f"#!/bin/bash\n{header(plan, NAME, options, rendering, usage)}{requests}\n"


def slurm_time(seconds: float) -> str:
    """Return a time limit in Slurm's form, `1-02:00:00`, rounded up to minutes."""
    minutes = math.ceil(seconds / 60)
    return f"{minutes // 1440}-{minutes // 60 % 24:02}:{minutes % 60:02}:00"
