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
from lab.extras import named_extras
from lab.run.fault_injection import parse_faults
from lab.service import simulate as service
from lab.text import short

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(Shown):
    """Simulated trainings.

    Attributes:
        result: The trainings, the nodes and the costs of a step.
    """

    result: service.Simulation

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each training, with the metrics of `lab simulate --json`."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame([row.to_json() for row in self.result.rows])

    def _shown(self) -> Group:
        return Group(self.result.table(), *map(Text, self.result.notes))


@named_extras()
def simulate(  # longer than 60 lines: the parameters are those of the command line
    way: str,
    *,
    run: AnyPath | None = None,
    workers: int | Sequence[int] | None = None,
    ps: int | Sequence[int] | None = None,
    cluster: Cluster | AnyPath | None = None,
    links: str | None = None,
    network: str | None = None,
    latency: str | None = None,
    cores: int | None = None,
    step: str | None = None,
    faults: str | None = None,
    batch_size: int = 100,
    steps: int = service.STEPS,
    seed: int = 0,
    beyond_validated: bool = False,
) -> Simulation:
    """Predict the speed of a training by a simulation of its steps; start nothing.

    Args:
        way: `async`, `sync` or `multiworker`.
        run: The run that calibrates: its id, `last` or its directory; None: the shipped machine.
        workers: Numbers of workers; None: 1, 2, 4 and 8.
        ps: Numbers of parameter servers, each with each number of workers; None: 1.
        cluster: A config that sets the tasks and their nodes, or its file.
        links: The rate of each task's link on one host: `"100mbit"`; None: no links.
        network: The rate of the network between the tasks' hosts: `"100gbit"`; None: one host.
        latency: The time from one node to another: `"20us"`.
        cores: CPU cores of each host; None: as the machine that calibrates.
        step: The time of a GPU for a batch: `"2ms"`; None: CPUs, as measured.
        faults: Workers that are slow: `"slow:0.5 worker-1"`.
        batch_size: Images in a worker's batch.
        steps: The number of simulated steps of all workers; more give a narrower result.
        seed: The seed of the random step times; equal seeds give equal results.
        beyond_validated: Whether to predict what was never validated, without a known error.

    Raises:
        InputError: An argument is invalid, the run cannot calibrate, the config lacks a job, or a
            prediction was never validated.
        LabError: The run cannot be read.
    """
    if way not in service.WAYS:
        raise InputError(f"way: no way {short(way)!r}", f"use one of {', '.join(service.WAYS)}")
    options = service.SimulateOptions(
        way=way,
        run=None if run is None else str(run),
        workers=_counts("workers", workers, service.MAX_WORKERS),
        ps=_counts("ps", ps, service.MAX_PS),
        cluster=cluster if cluster is None or isinstance(cluster, Cluster) else str(cluster),
        links=_amount("links", links, units.bytes_per_s),
        network=_amount("network", network, units.bytes_per_s),
        latency_s=_amount("latency", latency, units.delay_s),
        cores=None if cores is None else _whole("cores", cores, 1, service.MAX_CORES),
        step_s=_amount("step", step, units.step_s),
        batch_size=_whole("batch_size", batch_size, 1, service.MAX_BATCH),
        faults=() if faults is None else parse_arg("faults", parse_faults, faults),
        steps=_whole("steps", steps, 1, service.MAX_STEPS),
        seed=_whole("seed", seed, 0, 2**31 - 1),
        beyond=beyond_validated,
    )
    return Simulation(service.simulate_all(options))


def _whole(name: str, given: int, least: int, most: int) -> int:
    return parse_arg(name, units.whole(least, most), str(given))


def _counts(name: str, given: int | Sequence[int] | None, most: int) -> tuple[int, ...] | None:
    if given is None:
        return None
    several = given if isinstance(given, Sequence) else [given]
    return parse_arg(name, units.counts(most), ",".join(map(str, several)))


def _amount(name: str, given: str | None, parse: Callable[[str], float]) -> float | None:
    return None if given is None else parse_arg(name, parse, str(given))
