"""The tasks of a Slurm job.

The job's script calls this module in three ways::

    python -m lab.task.agent.slurm cluster HOSTS ADDRESSES JOB...
    python -m lab.task.agent.slurm COMPONENT
    python -m lab.task.agent.slurm end

`cluster`, in the batch step, prints TensorFlow's cluster spec. HOSTS are the names of the job's
nodes, in the order of its components. ADDRESSES has a line for each node, with its name and its
address. The JOBs are TensorFlow's, in the config's order. With the number of a component of the
job, in a step, it becomes the agent of one task. `end` cancels the run, so that the chief saves the
parameters. It reads these variables::

    LAB_SLURM_NODES   for each component of the job, its nodes; for each node, its tasks and their
                      number of GPUs: [[["tf1", {"ps-0": 0}]], [["tf2", {"worker-0": 2}]]]
    LAB_RUNS          the run volume
    LAB_OUTPUT        the directory of the agents' output

and Slurm's own. It calls none of Slurm's commands, because an image has none. TensorFlow's
`SlurmClusterResolver` does none of this: without GPUs it fails.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.base import variables as var
from lab.protocol.volume import Request, Volume
from lab.protocol.volume.continuation import (
    continued_spec,
    continues,
    mark_lost,
    next_request,
    next_step,
)
from lab.protocol.volume.control import VolumeBusy, cancel, requests, submit, uploads
from lab.protocol.volume.layout import ClusterSpec, new_run_id
from lab.protocol.volume.states import run_state
from lab.protocol.volume.status import read_statuses

Components = Sequence[Sequence[tuple[str, Mapping[str, int]]]]
"""The nodes of each component of a job: a node's name, and its tasks with their number of GPUs."""

_FIRST_PORT: Final = 10_000
_PORTS: Final = 22_016
"""The ports end below those that Linux gives to clients (32768)."""

_PORTS_OF_A_JOB: Final = 64
_EXIT_USAGE: Final = 2


class SlurmError(Exception):
    """The job differs from what the script expects; the message says how."""


def port_of(job: int, position: int) -> int:
    """Return the port of a task.

    All tasks of a job have different ports, because two nodes may be one host. Jobs with near
    numbers have different ports, because they may share a node.

    Args:
        job: The job's number.
        position: The position of the task in the job, from 0.
    """
    return _FIRST_PORT + (job * _PORTS_OF_A_JOB + position) % _PORTS


def cluster_spec(
    components: Components, jobs: Sequence[str], hosts: Sequence[str], job: int
) -> dict[str, list[str]]:
    """Return TensorFlow's cluster spec.

    Args:
        components: The components of the job.
        jobs: The names of TensorFlow's jobs.
        hosts: The address of each node, in the order of the components.
        job: The job's number.

    Raises:
        SlurmError: The job has another number of nodes than the script has requested.
    """
    nodes = [tasks for component in components for _, tasks in component]
    if len(hosts) != len(nodes):
        raise SlurmError(f"nodes of the job: {len(hosts)}; the script needs {len(nodes)}")
    addresses: dict[str, str] = {}
    for tasks, host in zip(nodes, hosts, strict=True):
        for task in tasks:
            addresses[task] = f"{host}:{port_of(job, len(addresses))}"
    spec: dict[str, list[str]] = {name: [] for name in jobs}
    for task in sorted(addresses, key=lambda task: int(task.rpartition("-")[2])):
        spec[task.rpartition("-")[0]].append(addresses[task])
    return spec


def task_environ(
    components: Components, component: int, environ: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the variables of the agent that this task of a step becomes.

    Args:
        components: The components of the job.
        component: The number of the component.
        environ: The variables that Slurm has set.

    Returns:
        The variables; None: the node has no further task.

    Raises:
        SlurmError: The node has fewer GPUs than its tasks need.
    """
    # Slurm numbers the nodes of a step through all its components.
    node, tasks = components[component][
        int(environ["SLURM_NODEID"]) - sum(map(len, components[:component]))
    ]
    position = int(environ["SLURM_LOCALID"])
    if position >= len(tasks):
        return None
    names, counts = list(tasks), list(tasks.values())
    visible = [gpu for gpu in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    if sum(counts) > len(visible):
        host = environ.get("SLURMD_NODENAME", "the node")
        raise SlurmError(f"GPUs of {host}: {len(visible)}; its tasks need {sum(counts)}")
    first = sum(counts[:position])
    own = visible[first : first + counts[position]]
    return {
        **environ,
        var.LAB_NODE: node,
        var.LAB_TASK: names[position],
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(own) or "-1",
    }


def begin_again(volume: Volume, cluster: ClusterSpec) -> None:
    """Submit the run that continues an interrupted one, when Slurm starts the job again.

    It is a new run, because the cluster spec of the old one names the nodes that the job had then.
    The run of a rendered script is continued by `autorun`.

    Args:
        volume: The run volume; the agents have not started yet.
        cluster: TensorFlow's cluster spec.

    Raises:
        OSError: The volume cannot be written.
    """
    mark_lost(volume, "Slurm started the job again")
    for path in volume.agents.glob("*.json"):
        path.unlink()  # of an agent that was killed
    for last in requests(volume)[-1:]:
        if not last.autorun and continues(volume, last):
            run_id = new_run_id(last.spec.experiment)
            request = Request(run_id, continued_spec(volume, last), cluster)
            with uploads(volume, run_id):
                submit(volume, next_request(volume, last, request, _print))


def cancel_runs(volume: Volume) -> None:
    """Request the end of the run that is under way, before Slurm ends its tasks.

    Raises:
        OSError: The volume cannot be written.
    """
    for request in requests(volume):
        statuses = read_statuses(volume, request)
        if not run_state(status.state for status in statuses.values()).ended:
            reason = "the time limit of the job is near"
            if not request.autorun:
                reason += f"; {next_step(request, statuses)}"
            cancel(volume, request.run_id, reason)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the cluster spec, become an agent, or cancel the run; return the exit code."""
    try:
        if arguments == ["end"]:
            cancel_runs(Volume(Path(environ[var.LAB_RUNS])))
            return 0
        components: Components = json.loads(environ[var.LAB_SLURM_NODES])
        if arguments[0] == "cluster":
            _, names, addresses, *jobs = arguments
            # Slurm may know an address that differs from the name.
            known = dict(line.split(maxsplit=1) for line in addresses.splitlines())
            hosts = [known.get(name, name) for name in names.split()]
            cluster = cluster_spec(components, jobs, hosts, int(environ["SLURM_JOB_ID"]))
            if int(environ.get("SLURM_RESTART_COUNT", "0")):
                begin_again(Volume(Path(environ[var.LAB_RUNS])), cluster)
            sys.stdout.write(json.dumps(cluster))
            return 0
        own = task_environ(components, int(arguments[0]), environ)
    except (SlurmError, VolumeBusy, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    if own is not None:
        agent = [sys.executable, "-P", "-m", "lab.task.agent"]
        os.execve(agent[0], agent, own)  # noqa: S606
    return 0


def _print(line: str) -> None:
    sys.stderr.write(f"lab: {line}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
