"""Simulate trainings: one for each number of workers and parameter servers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table

from lab import units
from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.formatting import percent, rate
from lab.run.tables import table_of
from lab.task.text import short

if TYPE_CHECKING:
    from lab.simulation import Box, Costs, Forecast  # SimPy is imported by a simulation only

WAYS: Final = ("async", "sync", "multiworker")
MAX_WORKERS: Final = 512
MAX_PS: Final = 64
MAX_CORES: Final = 1024
MAX_BATCH: Final = 1_000_000
LATENCY: Final = "20us"
_MAX_SHAPES: Final = 64
_WORKERS: Final = (1, 2, 4, 8)
_PS: Final = (1,)


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options of a simulation.

    Attributes:
        way: How the workers combine their updates: one of `WAYS`.
        workers: Numbers of workers; None: 1, 2, 4 and 8.
        ps: Numbers of parameter servers, each with each number of workers; None: 1.
        cluster: A config file that sets both numbers and the tasks' nodes; or None.
        network: Bytes per second of each node's link; None: all tasks share one host.
        latency_s: Seconds from one node to another; None: `LATENCY`.
        cores: CPU cores of each node; None: the number of cores of this host.
        step_s: Seconds that a GPU needs for a batch; None: CPU cores compute it.
        batch_size: Images in a worker's batch.
    """

    way: str
    workers: Sequence[int] | None
    ps: Sequence[int] | None
    cluster: str | Cluster | None
    network: float | None
    latency_s: float | None
    cores: int | None
    step_s: float | None
    batch_size: int

    @property
    def is_ring(self) -> bool:
        """Whether there are no parameter servers."""
        return self.way == WAYS[-1]

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            InputError: They do not.
        """
        if self.is_ring and self.ps is not None:
            raise InputError("multiworker has no parameter servers", "leave out --ps")
        if self.cluster is not None and (self.workers is not None or self.ps is not None):
            raise InputError(
                "--cluster already sets the number of tasks", "leave out --workers and --ps"
            )
        if self.latency_s is not None and self.network is None:
            raise InputError("--latency needs a network", "add --network, or leave out --latency")
        workers, ps = len(self.workers or _WORKERS), len(self.ps or _PS)
        if workers * ps > _MAX_SHAPES:
            raise InputError(
                f"{workers} times {ps} trainings are too many", f"use {_MAX_SHAPES} or fewer"
            )


@dataclass(frozen=True, slots=True)
class Row:
    """One simulated training.

    Attributes:
        forecast: The simulated metrics.
        efficiency: Images per second, divided by those of one worker times the number of workers.
    """

    forecast: Forecast
    efficiency: float

    def to_json(self) -> dict[str, Any]:
        """Return all metrics as JSON, with the minimum of bytes that a step must transfer."""
        from lab.simulation import least_bytes  # noqa: PLC0415

        found = self.forecast
        return {
            "workers": found.shape.workers,
            "ps": found.shape.ps,
            "steps_per_s": found.steps_per_s,
            "images_per_s": found.images_per_s,
            "efficiency": self.efficiency,
            "staleness": found.staleness,
            "computing": found.computing,
            "waiting": found.waiting,
            "ps_cores": found.ps_cores,
            "cores_busy": found.cores_busy,
            "link_busy": found.link_busy,
            "worker_cpu_s": found.worker_cpu_s,
            "ps_cpu_s": found.ps_cpu_s,
            "wire_bytes": found.wire_bytes,
            "least_bytes": least_bytes(found.shape),
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """Simulated trainings.

    Attributes:
        options: The options.
        box: The nodes.
        costs: The costs of a step.
        rows: The trainings.
    """

    options: SimulateOptions
    box: Box
    costs: Costs
    rows: list[Row]

    def table(self) -> Table:
        """Return a table with a row for each training."""
        rows = [_cells(row) for row in self.rows]
        return table_of(list(rows[0]), [list(row.values()) for row in rows])

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON, for a program."""
        box = self.box
        return {
            "way": self.options.way,
            "batch_size": self.options.batch_size,
            "box": {
                "cores": box.cores,
                "nodes": box.nodes,
                "latency_s": box.latency_s,
                "bandwidth": self.options.network,
                "ps_on": box.ps_on,
                "worker_on": box.worker_on,
            },
            "costs": self.costs.to_json(),
            "predictions": [row.to_json() for row in self.rows],
        }


def simulate_all(options: SimulateOptions) -> Simulation:
    """Simulate a training for each number of workers and parameter servers.

    Raises:
        InputError: The options do not fit together, or the config lacks a job that they need.
    """
    options.check()
    from lab.simulation import MEASURED, Shape, Way, simulate  # noqa: PLC0415

    given = options.cluster
    cluster = load_cluster(Path(given)) if isinstance(given, str) else given
    counts, box = _counts(options, cluster), _box(options, cluster)
    costs = MEASURED if options.step_s is None else replace(MEASURED, device_s=options.step_s)

    @cache
    def forecast(workers: int, ps: int) -> Forecast:
        return simulate(Shape(Way(options.way), workers, ps, options.batch_size), costs, box)

    rows = [
        Row(found, found.efficiency(forecast(1, ps)))
        for workers, ps in counts
        for found in [forecast(workers, ps)]
    ]
    return Simulation(options, box, costs, rows)


def _counts(options: SimulateOptions, cluster: Cluster | None) -> list[tuple[int, int]]:
    """Return pairs of numbers of workers and parameter servers, from the options or the config."""
    ring = options.is_ring
    if cluster is None:
        servers = (0,) if ring else options.ps or _PS
        return [(workers, ps) for ps in servers for workers in options.workers or _WORKERS]
    tasks = {name: len(job.on) for name, job in cluster.jobs.items()}
    for job in _jobs(options):
        if not tasks.get(job):
            name = options.cluster if isinstance(options.cluster, str) else cluster.name
            raise InputError(
                f"{short(name)} has no job {job!r}, which {options.way} needs",
                "use another config, or --workers and --ps",
            )
    return [(tasks["worker"], 0 if ring else tasks["ps"])]


def _jobs(options: SimulateOptions) -> tuple[str, ...]:
    return ("worker",) if options.is_ring else ("worker", "ps")


def _box(options: SimulateOptions, cluster: Cluster | None) -> Box:
    """Return one host; or a network with a node for each task, or with the config's nodes."""
    from lab.simulation import Box  # noqa: PLC0415

    cores = options.cores or os.cpu_count() or 1
    latency_s = units.delay_s(LATENCY) if options.latency_s is None else options.latency_s
    if options.network is None:
        return Box(cores)
    apart = Box(cores, 0, options.network, latency_s)
    if cluster is None:
        return apart
    numbers = {node: number for number, node in enumerate(cluster.nodes)}
    on = {job: tuple(numbers[node] for node in cluster.jobs[job].on) for job in _jobs(options)}
    return replace(apart, nodes=len(numbers), ps_on=on.get("ps", ()), worker_on=on["worker"])


def _cells(row: Row) -> dict[str, str]:
    """Return a row of the table: column to text."""
    found = row.forecast
    speed = found.steps_per_s
    stale = {} if found.staleness is None else {">stale": f"{found.staleness:.1f}"}
    return {
        ">workers": str(found.shape.workers),
        **({">ps": str(found.shape.ps)} if found.shape.ps else {}),
        ">steps/s": rate(speed) if speed >= 10 else f"{speed:.2f}",  # noqa: PLR2004
        ">images/s": rate(found.images_per_s),
        ">effi-\nciency": percent(row.efficiency),
        **stale,
        ">wait": percent(found.waiting),
        ">busiest\ncores": percent(found.cores_busy),
        ">busiest\nlink": percent(found.link_busy),
        ">bytes\nper step": f"{found.wire_bytes / 1e3:,.1f} kB",
    }
