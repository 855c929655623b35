"""The tasks of a Slurm job: `python -m lab.task.agent.slurm [COMPONENT | end]` in a script.

Without an argument, in the batch step, it prints TensorFlow's cluster spec. With the number of a
component of the job, in a step, it becomes the agent of one task. With `end` it cancels the run, so
that the chief saves the parameters. It reads these variables::

    LAB_SLURM_NODES   for each component of the job, its nodes; for each node, its tasks and their
                      number of GPUs: [[["tf1", {"ps-0": 0}]], [["tf2", {"worker-0": 2}]]]
    LAB_SLURM_JOBS    the names of TensorFlow's jobs, in the config's order: ps worker
    LAB_SLURM_HOSTS   the names of the job's nodes, in the order of its components
    LAB_SLURM_ADDRESSES
                      a line for each node, with its name and its address
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
from typing import Final, NoReturn

from lab.task.protocol import Volume
from lab.task.protocol.control import cancel, requests, state_of
from lab.task.protocol.statuses import read_status, write_lost

Components = Sequence[Sequence[tuple[str, Mapping[str, int]]]]
"""The nodes of each component of a job: a node's name, and its tasks with their number of GPUs."""

_FIRST_PORT: Final = 10_000
_PORTS: Final = 22_016
"""The ports end below those that Linux gives to clients (32768)."""

_PORTS_OF_A_JOB: Final = 64
_EXIT_USAGE: Final = 2


class SlurmError(Exception):
    """The job is not as the script expects it; the message has the reason."""


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
        raise SlurmError(f"the job has {len(hosts)} nodes, but the script needs {len(nodes)}")
    addresses: dict[str, str] = {}
    for tasks, host in zip(nodes, hosts, strict=True):
        for task in tasks:
            addresses[task] = f"{host}:{port_of(job, len(addresses))}"
    spec: dict[str, list[str]] = {name: [] for name in jobs}
    for task in sorted(addresses, key=lambda task: int(task.rpartition("-")[2])):
        spec[task.rpartition("-")[0]].append(addresses[task])
    return spec


def _hosts(environ: Mapping[str, str]) -> list[str]:
    """The addresses of the nodes; Slurm may know another than the name."""
    lines = environ["LAB_SLURM_ADDRESSES"].splitlines()
    addresses = dict(line.split(maxsplit=1) for line in lines)
    return [addresses.get(name, name) for name in environ["LAB_SLURM_HOSTS"].split()]


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
    visible = [each for each in environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each]
    if sum(counts) > len(visible):
        host = environ.get("SLURMD_NODENAME", "the node")
        raise SlurmError(f"{host} has {len(visible)} GPUs, but its tasks need {sum(counts)}")
    first = sum(counts[:position])
    own = visible[first : first + counts[position]]
    return {
        **environ,
        "LAB_NODE": node,
        "LAB_TASK": names[position],
        "LAB_LOCKS": "0",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(own) or "-1",
    }


def end_interrupted(volume: Volume) -> None:
    """Mark the runs that the job had not ended before Slurm put it back into the queue.

    Their cluster spec names the nodes that it had then.

    Raises:
        OSError: The volume cannot be written.
    """
    for request in requests(volume):
        for task in () if state_of(volume, request).ended else request.tasks():
            path = volume.status(request.run_id, task)
            status = read_status(path, task)
            if not status.state.ended:
                write_lost(path, status, "Slurm started the job again")


def cancel_runs(volume: Volume) -> None:
    """Request the end of the run that is under way, before Slurm ends its tasks.

    Raises:
        OSError: The volume cannot be written.
    """
    for request in requests(volume):
        if not state_of(volume, request).ended:
            cancel(volume, request.run_id, "the time limit of the job is near")


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print the cluster spec, become an agent, or cancel the run; return the exit code."""
    try:
        if arguments == ["end"]:
            cancel_runs(Volume(Path(environ["LAB_RUNS"])))
            return 0
        components: Components = json.loads(environ["LAB_SLURM_NODES"])
        if not arguments:
            if int(environ.get("SLURM_RESTART_COUNT", "0")):
                end_interrupted(Volume(Path(environ["LAB_RUNS"])))
            hosts = _hosts(environ)
            jobs, number = environ["LAB_SLURM_JOBS"].split(), int(environ["SLURM_JOB_ID"])
            sys.stdout.write(json.dumps(cluster_spec(components, jobs, hosts, number)))
            return 0
        own = task_environ(components, int(arguments[0]), environ)
    except (SlurmError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return _EXIT_USAGE
    if own is not None:
        _become_agent(own)
    return 0


def _become_agent(own: Mapping[str, str]) -> NoReturn:
    output = Path(own["LAB_OUTPUT"]) / f"{own['LAB_TASK']}.log"
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    command = [sys.executable, "-P", "-m", "lab.task.agent"]
    os.execve(command[0], command, own)  # noqa: S606


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
