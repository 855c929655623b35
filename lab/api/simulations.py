"""Simulate a training from Python: `lab simulate` without its command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from lab import units
from lab.api.args import parse_arg
from lab.api.planning import AnyPath
from lab.api.tables import Shown
from lab.config import Cluster
from lab.errors import InputError
from lab.service import simulate as service
from lab.task.text import short

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Shown):
    """Simulated trainings.

    Attributes:
        result: The trainings, the nodes and the costs of a step.
    """

    result: service.Simulation

    def frame(self) -> pd.DataFrame:
        """Return a row for each training, with the metrics of `lab simulate --json`."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame([row.to_json() for row in self.result.rows])

    def _shown(self) -> Group:
        return Group(self.result.table(), Text("predicted, not measured"))


def simulate(
    way: str,
    *,
    workers: int | Sequence[int] | None = None,
    ps: int | Sequence[int] | None = None,
    cluster: Cluster | AnyPath | None = None,
    network: str | None = None,
    latency: str | None = None,
    cores: int | None = None,
    step: str | None = None,
    batch_size: int = 100,
) -> Simulation:
    """Predict the speed of a training by a simulation of its steps; start nothing.

    Args:
        way: `async`, `sync` or `multiworker`.
        workers: Numbers of workers; None: 1, 2, 4 and 8.
        ps: Numbers of parameter servers, each with each number of workers; None: 1.
        cluster: A config that sets the tasks and their nodes, or its file.
        network: The rate of the network between the tasks' hosts: `"100gbit"`; None: one host.
        latency: The time from one host to another: `"20us"`.
        cores: CPU cores of each host; None: the number of cores of this host.
        step: The time of a GPU for a batch: `"2ms"`; None: CPUs, as measured.
        batch_size: Images in a worker's batch.

    Raises:
        InputError: An argument is invalid, or the config lacks a job that the simulation needs.
    """
    if way not in service.WAYS:
        raise InputError(f"way: no way {short(way)!r}", f"use one of {', '.join(service.WAYS)}")
    options = service.SimulateOptions(
        way=way,
        workers=_counts("workers", workers, service.MAX_WORKERS),
        ps=_counts("ps", ps, service.MAX_PS),
        cluster=cluster if cluster is None or isinstance(cluster, Cluster) else str(cluster),
        network=_amount("network", network, units.bytes_per_s),
        latency_s=_amount("latency", latency, units.delay_s),
        cores=None
        if cores is None
        else parse_arg("cores", units.whole(1, service.MAX_CORES), str(cores)),
        step_s=_amount("step", step, units.step_s),
        batch_size=parse_arg("batch_size", units.whole(1, service.MAX_BATCH), str(batch_size)),
    )
    return Simulation(service.simulate_all(options))


def _counts(name: str, given: int | Sequence[int] | None, most: int) -> tuple[int, ...] | None:
    if given is None:
        return None
    several = given if isinstance(given, Sequence) else [given]
    return parse_arg(name, units.counts(most), ",".join(map(str, several)))


def _amount(name: str, given: str | None, parse: Callable[[str], float]) -> float | None:
    return None if given is None else parse_arg(name, parse, str(given))
