"""From what a user asks of `lab simulate` to its table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lab.cli.output import print_json, say
from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.formatting import percent, rate
from lab.run.cells import show, table_of
from lab.simulation import MEASURED, Box, Costs, Forecast, Shape, Way, least_bytes, simulate
from lab.task.text import short


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be predicted.

    Attributes:
        way: The value of a `Way`.
        workers: Numbers of workers.
        ps: Numbers of parameter servers; each with each of those.
        cluster: A description that says both, and on which nodes they are; or None.
        network: Bytes per second of each machine's link; None: all tasks share a box.
        latency_s: Seconds from one machine to another.
        cores: Of each machine; None: as many as this one has.
        step_s: Seconds in which a card computes a batch; None: the cores do it.
        batch_size: Images in a worker's batch.
    """

    way: str
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
    """A prediction.

    Attributes:
        forecast: What it is.
        efficiency: Images per second, as a share of so many times those of one worker.
    """

    forecast: Forecast
    efficiency: float

    def to_json(self) -> dict[str, Any]:
        """All figures, with the least bytes that such a step has to move."""
        forecast = self.forecast
        return {
            "workers": forecast.shape.workers,
            "ps": forecast.shape.ps,
            "steps_per_s": forecast.steps_per_s,
            "images_per_s": forecast.images_per_s,
            "efficiency": self.efficiency,
            "staleness": forecast.staleness,
            "computing": forecast.computing,
            "ps_cores": forecast.ps_cores,
            "cores_busy": forecast.cores_busy,
            "link_busy": forecast.link_busy,
            "worker_cpu_s": forecast.worker_cpu_s,
            "ps_cpu_s": forecast.ps_cpu_s,
            "wire_bytes": forecast.wire_bytes,
            "least_bytes": least_bytes(forecast.shape),
        }


def simulated(asked: Asked, *, json: bool) -> None:
    """Print a table of predictions, or JSON.

    Raises:
        InputError: The description cannot be used for it.
    """
    way = Way(asked.way)
    cluster = None if asked.cluster is None else load_cluster(Path(asked.cluster))
    counts, box = _counts(asked, cluster, way), _box(asked, cluster, way)
    costs = MEASURED if asked.step_s is None else replace(MEASURED, device_s=asked.step_s)
    rows = list(predicted(way, counts, asked.batch_size, costs, box))
    if json:
        machine = {"cores": box.cores, "nodes": box.nodes, "latency_s": box.latency_s}
        places = {"ps_on": box.ps_on, "worker_on": box.worker_on}
        print_json(
            {
                "way": way.value,
                "batch_size": asked.batch_size,
                "box": {**machine, "bandwidth": asked.network, **places},
                "costs": costs.to_json(),
                "predictions": [row.to_json() for row in rows],
            }
        )
        return
    show(_table(rows))
    say("predicted, not measured: docs/scaling.md tells from what, and how far off it can be")


def predicted(
    way: Way, counts: Sequence[tuple[int, int]], batch_size: int, costs: Costs, box: Box
) -> list[Row]:
    """A prediction for each number of workers and parameter servers."""

    @cache
    def forecast(workers: int, ps: int) -> Forecast:
        return simulate(Shape(way, workers, ps, batch_size), costs, box)

    return [
        Row(found, found.efficiency(forecast(1, ps)))
        for workers, ps in counts
        for found in [forecast(workers, ps)]
    ]


def _counts(asked: Asked, cluster: Cluster | None, way: Way) -> list[tuple[int, int]]:
    """Pairs of workers and parameter servers: those that are asked for, or the description's."""
    if asked.cluster is None or cluster is None:
        servers = (0,) if way is Way.RING else asked.ps
        return [(workers, ps) for ps in servers for workers in asked.workers]
    tasks = {name: len(job.on) for name, job in cluster.jobs.items()}
    for job in _jobs(way):
        if not tasks.get(job):
            raise InputError(
                f"{short(asked.cluster)} has no job {job!r}, which {way.value} needs",
                "take another description, or --workers and --ps",
            )
    return [(tasks["worker"], 0 if way is Way.RING else tasks["ps"])]


def _jobs(way: Way) -> tuple[str, ...]:
    return ("worker",) if way is Way.RING else ("worker", "ps")


def _box(asked: Asked, cluster: Cluster | None, way: Way) -> Box:
    """One machine; or a network of one for each task, or of the description's nodes."""
    cores = asked.cores or os.cpu_count() or 1
    if asked.network is None:
        return Box(cores)
    apart = Box(cores, 0, asked.network, asked.latency_s)
    if cluster is None:
        return apart
    numbers = {node: number for number, node in enumerate(cluster.nodes)}
    on = {job: tuple(numbers[node] for node in cluster.jobs[job].on) for job in _jobs(way)}
    return replace(apart, nodes=len(numbers), ps_on=on.get("ps", ()), worker_on=on["worker"])


def _table(rows: Sequence[Row]) -> Any:  # noqa: ANN401  (rich's)
    def cells(row: Row) -> list[str]:
        found = row.forecast
        servers = [str(found.shape.ps)] if found.shape.ps else []
        stale = [] if found.staleness is None else [f"{found.staleness:.1f}"]
        return [
            str(found.shape.workers),
            *servers,
            rate(found.steps_per_s) if found.steps_per_s >= 10 else f"{found.steps_per_s:.2f}",  # noqa: PLR2004
            rate(found.images_per_s),
            percent(row.efficiency),
            *stale,
            percent(found.cores_busy),
            percent(found.link_busy),
            f"{found.wire_bytes / 1e3:,.1f} kB",
        ]

    shape = rows[0].forecast.shape
    columns = [
        ">workers",
        *([">ps"] if shape.ps else []),
        ">steps/s",
        ">images/s",
        ">efficiency",
        *([">stale"] if shape.way is Way.ASYNC else []),
        ">busiest\ncores",
        ">busiest\nlink",
        ">bytes\na step",
    ]
    return table_of(columns, [cells(row) for row in rows])
