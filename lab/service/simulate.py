"""Simulate trainings: one for each number of workers and parameter servers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.simulation import MEASURED, Box, Costs, Forecast, Shape, Way, least_bytes, simulate
from lab.task.text import short


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options of a simulation.

    Attributes:
        way: How the workers combine their updates.
        workers: Numbers of workers.
        ps: Numbers of parameter servers; each is combined with each number of workers.
        cluster: A config file that sets both numbers and the tasks' nodes; or None.
        network: Bytes per second of each node's link; None: all tasks share one host.
        latency_s: Seconds from one node to another.
        cores: CPU cores of each node; None: the number of cores of this host.
        step_s: Seconds that a GPU needs for a batch; None: CPU cores compute it.
        batch_size: Images in a worker's batch.
    """

    way: Way
    workers: Sequence[int]
    ps: Sequence[int]
    cluster: str | None
    network: float | None
    latency_s: float
    cores: int | None
    step_s: float | None
    batch_size: int


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
        found = self.forecast
        return {
            "workers": found.shape.workers,
            "ps": found.shape.ps,
            "steps_per_s": found.steps_per_s,
            "images_per_s": found.images_per_s,
            "efficiency": self.efficiency,
            "staleness": found.staleness,
            "computing": found.computing,
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

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON, for a program."""
        box = self.box
        return {
            "way": self.options.way.value,
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
        InputError: The config lacks a job that the simulation needs.
    """
    cluster = None if options.cluster is None else load_cluster(Path(options.cluster))
    counts, box = _counts(options, cluster), _box(options, cluster)
    costs = MEASURED if options.step_s is None else replace(MEASURED, device_s=options.step_s)

    @cache
    def forecast(workers: int, ps: int) -> Forecast:
        return simulate(Shape(options.way, workers, ps, options.batch_size), costs, box)

    rows = [
        Row(found, found.efficiency(forecast(1, ps)))
        for workers, ps in counts
        for found in [forecast(workers, ps)]
    ]
    return Simulation(options, box, costs, rows)


def _counts(options: SimulateOptions, cluster: Cluster | None) -> list[tuple[int, int]]:
    """Return pairs of numbers of workers and parameter servers, from the options or the config."""
    ring = options.way is Way.RING
    if options.cluster is None or cluster is None:
        servers = (0,) if ring else options.ps
        return [(workers, ps) for ps in servers for workers in options.workers]
    tasks = {name: len(job.on) for name, job in cluster.jobs.items()}
    for job in _jobs(options.way):
        if not tasks.get(job):
            raise InputError(
                f"{short(options.cluster)} has no job {job!r}, which {options.way.value} needs",
                "use another config, or --workers and --ps",
            )
    return [(tasks["worker"], 0 if ring else tasks["ps"])]


def _jobs(way: Way) -> tuple[str, ...]:
    return ("worker",) if way is Way.RING else ("worker", "ps")


def _box(options: SimulateOptions, cluster: Cluster | None) -> Box:
    """Return one host; or a network with a node for each task, or with the config's nodes."""
    cores = options.cores or os.cpu_count() or 1
    if options.network is None:
        return Box(cores)
    apart = Box(cores, 0, options.network, options.latency_s)
    if cluster is None:
        return apart
    numbers = {node: number for number, node in enumerate(cluster.nodes)}
    on = {job: tuple(numbers[node] for node in cluster.jobs[job].on) for job in _jobs(options.way)}
    return replace(apart, nodes=len(numbers), ps_on=on.get("ps", ()), worker_on=on["worker"])
