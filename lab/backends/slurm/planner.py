"""Places configs on nodes that Slurm selects, and renders batch scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lab.backends.names import AUTO, SLURM
from lab.backends.planner import Planner
from lab.backends.rendered_file import Rendering
from lab.backends.slurm.render import render
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
from lab.placement.place import Placed, place
from lab.placement.plan import Plan
from lab.runtimes import TENSORFLOW


class SlurmPlanner(Planner):
    """Places configs on nodes that Slurm selects, and renders batch scripts."""

    name = SLURM

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config on nodes that Slurm selects; see `Planner`."""
        if mode not in {AUTO, "none"}:
            raise InputError(f"--gpus {mode}: Slurm selects the GPUs", "leave it out, or use none")
        gpus = mode == AUTO
        if file is not None:
            load_for_slurm(file, gpus=gpus)
        return Placed(plan_for_slurm(cluster, gpus=gpus, runtime=runtime), None)

    def render(self, plan: Plan, rendering: Rendering) -> str:
        """Render a plan as a batch script; see `Planner`."""
        return render(plan, self.options, rendering)

    def start_hint(self, file: Path) -> str:
        """Return how a script is submitted; see `Planner`."""
        return f"submit it in the project's directory with `sbatch {file}`"


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


def plan_for_slurm(cluster: Cluster, *, gpus: bool, runtime: str = TENSORFLOW.name) -> Plan:
    """Place a config on nodes that Slurm selects: its GPUs, CPUs and memory are only numbers.

    A list of GPUs counts as its number, with a notice.

    Args:
        cluster: The config.
        gpus: Whether the job gets GPUs.
        runtime: The runtime of the tasks.

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
        runtime=runtime,
        cluster_sha256=cluster.sha256,
        notices=(*plan.notices, *lists),
    )
