"""Places configs on hosts that a scheduler selects: GPUs, CPUs and memory are only numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from lab.backends.base import RecordedBackend
from lab.backends.names import AUTO
from lab.base.errors import ConfigError, InputError
from lab.base.formatting import counted
from lab.cluster.config import Cluster
from lab.cluster.config.diagnostics import Problem, texts
from lab.cluster.config.load import FIX, parse_config, read_file
from lab.cluster.config.validation import validate
from lab.cluster.gpu import another_host
from lab.cluster.gpu.values import Inventory
from lab.cluster.placement.place import Placed, place
from lab.protocol.experiments.faults import parse


class ScheduledBackend(RecordedBackend):
    """Runs tasks on hosts that a scheduler selects.

    Attributes:
        scheduler: The scheduler in messages: `Slurm`.
        unit: What gets the resources: `a Slurm job`.
        sets_shm: Whether it can have another size of shared memory than its host.
    """

    scheduler: ClassVar[str]
    unit: ClassVar[str]
    sets_shm: ClassVar[bool] = True

    def plan(
        self, cluster: Cluster, mode: str, *, runtime: str, file: Path | None = None
    ) -> Placed:
        """Place a config on hosts that the scheduler selects; see `Backend`.

        A list of GPUs counts as its number, with a notice.

        Raises:
            InputError: The file cannot be read, or the mode pins GPUs.
            ConfigError: The config is invalid, or has values that the scheduler does not support.
        """
        if mode not in {AUTO, "none"}:
            raise InputError(
                f"--gpus {mode}: {self.scheduler} selects the GPUs", "leave it out, or use none"
            )
        gpus = mode == AUTO
        if file is not None:
            self._check_file(file, gpus=gpus)
        if problems := texts(self.unsupported(cluster, gpus=gpus)):
            raise ConfigError(problems)
        nowhere = Inventory("none", (), None, None)
        inventory = another_host(cluster.gpus_needed) if gpus else nowhere
        plan = place(cluster.with_gpu_counts(), inventory)
        lists = [
            f"nodes.{name}.gpus: {self.scheduler} selects the GPUs; the list counts as"
            f" {counted(node.gpu_count, 'GPU')}"
            for name, node in cluster.nodes.items()
            if gpus and node.pins
        ]
        placed = replace(
            plan,
            mode="none" if plan.mode == "none" else "count",
            runtime=runtime,
            cluster_sha256=cluster.sha256,
            notices=(*plan.notices, *lists),
        )
        return Placed(placed, None)

    def unsupported(self, cluster: Cluster, *, gpus: bool) -> Iterator[Problem]:
        """Yield a problem for each value of a config that the scheduler does not support.

        Args:
            cluster: The config.
            gpus: Whether tasks get GPUs.
        """
        for name in cluster.links:
            message = f"{self.unit} cannot change the network; leave it out"
            yield Problem(("links", name), message)
        for index, text in enumerate(cluster.faults):
            if parse(text).kind.on_network:
                message = f"{self.unit} cannot change the network; leave out this fault"
                yield Problem(("faults", index), message)
        for name, node in cluster.nodes.items():
            if node.shm is not None and not self.sets_shm:
                message = f"{self.unit} uses the shared memory of its hosts; leave it out"
                yield Problem(("nodes", name, "shm"), message)
        for name, job in cluster.jobs.items() if gpus else ():
            if job.share:
                message = f"{self.unit} gets whole GPUs; give each task its own, with `gpus: 1`"
                yield Problem(("jobs", name, "share"), message)
            elif job.gpu_memory_fraction is not None:
                message = f"{self.unit} gets whole GPUs; leave it out"
                yield Problem(("jobs", name, "gpu_memory_fraction"), message)

    def _check_file(self, path: Path, *, gpus: bool) -> None:
        """Check a config with the line of each problem.

        Raises:
            InputError: The file cannot be read.
            ConfigError: The config is invalid, or has values that the scheduler does not support.
        """

        def rules(cluster: Cluster) -> Iterator[Problem]:
            yield from validate(cluster)
            yield from self.unsupported(cluster, gpus=gpus)

        parse_config(Cluster, rules, read_file(path, FIX), str(path))
