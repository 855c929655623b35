"""Predict trainings: one for each number of workers and parameter servers, with its error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from lab import units
from lab.config import Cluster, load_cluster
from lab.errors import InputError
from lab.experiments.faults import Fault, Kind
from lab.formatting import counted, rate
from lab.simulation.model import Forecast, Host, Machine, Shape, Way
from lab.simulation.validation import SHIPPED, Error
from lab.store.directory import runs_path
from lab.store.names import open_runs
from lab.tables import table_of
from lab.text import short

WAYS: Final = ("async", "sync", "multiworker")
MAX_WORKERS: Final = 512
MAX_PS: Final = 64
MAX_CORES: Final = 1024
MAX_BATCH: Final = 1_000_000
MAX_STEPS: Final = 1_000_000
LATENCY: Final = "20us"
STEPS: Final = 2000
BEYOND: Final = "--beyond-validated"
ERRORS: Final = (
    "± held for 9 of 10 predictions of its kind in the validation: docs/explanation/scaling.md"
)
_MAX_SHAPES: Final = 64
_WORKERS: Final = (1, 2, 4, 8)
_PS: Final = (1,)


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """The options of `lab.api.simulate`, converted: rates in bytes per second, times in seconds."""

    way: str
    from_: str | None = None
    workers: Sequence[int] | None = None
    ps: Sequence[int] | None = None
    cluster: str | Cluster | None = None
    links: float | None = None
    network: float | None = None
    latency: float | None = None
    cores: int | None = None
    step: float | None = None
    fault: Sequence[Fault] | None = None
    batch_size: int = 100
    steps: int = STEPS
    seed: int = 0
    beyond_validated: bool = False
    runs_dir: str | None = None

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs of the training."""
        return ("worker",) if self.way == WAYS[-1] else ("ps", "worker")

    def check(self) -> None:
        """Check that the options fit together.

        Raises:
            InputError: They do not.
        """
        if "ps" not in self.jobs and self.ps is not None:
            raise InputError("multiworker has no parameter servers", "leave out --ps")
        if self.cluster is not None and (self.workers is not None or self.ps is not None):
            fix = "leave out --workers and --ps"
            raise InputError("--cluster already sets the number of tasks", fix)
        if self.links is not None and self.network is not None:
            raise InputError("--links is for one host, --network for several", "leave one out")
        if self.latency is not None and self.network is None and self.links is None:
            fix = "add --links or --network, or leave out --latency"
            raise InputError("--latency needs links", fix)
        workers, ps = len(self.workers or _WORKERS), len(self.ps or _PS)
        if workers * ps > _MAX_SHAPES:
            what = f"{workers} times {ps} trainings are too many"
            raise InputError(what, f"use {_MAX_SHAPES} or fewer")
        for each in self.fault or ():
            if each.kind is not Kind.SLOW or each.when:
                fix = "use slow:0.3 worker-0"
                raise InputError(f"fault {each.text!r} cannot be simulated", fix)


@dataclass(frozen=True, slots=True)
class Row:
    """One predicted training.

    Attributes:
        forecast: The prediction.
        error: What is known about its error.
    """

    forecast: Forecast
    error: Error

    def to_json(self) -> dict[str, Any]:
        """Return the prediction with its errors as JSON; an unknown error is null."""
        found, error = self.forecast, self.error
        return {
            "workers": found.shape.workers,
            "ps": found.shape.ps,
            "steps_per_s": found.steps_per_s,
            "images_per_s": found.images_per_s,
            "error": error.steps_per_s,
            "staleness": found.staleness,
            "staleness_error": error.staleness,
            "limit": found.limit,
            "kind": error.kind,
            "predictions": error.predictions,
            "never_validated": error.why,
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """Predicted trainings.

    Attributes:
        options: The options.
        machine: The machine that calibrates.
        host: The host.
        rows: The trainings.
    """

    options: SimulateOptions
    machine: Machine
    host: Host
    rows: list[Row]

    @property
    def notes(self) -> list[str]:
        """What the predictions are based on, and what was never validated, as sentences."""
        machine, why = self.machine, dict.fromkeys(row.error.why for row in self.rows)
        cores = counted(machine.host.cores, "core")
        source = f"predicted for the machine of {machine.label}, with {cores}"
        if self.options.from_ is None:
            source = (
                f"predicted for the shipped machine, {machine.label};"
                " for your own machine use --from RUN"
            )
        never = [f"never validated: {each}" for each in why if each]
        known = any(not row.error.why for row in self.rows)
        return [source, *([ERRORS] if known else []), *never]

    def table(self) -> Table:
        """Return a table with a row for each training."""
        rows = [_cells(row) for row in self.rows]
        return table_of(list(rows[0]), [list(row.values()) for row in rows])

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON, for a program."""
        host = self.host
        return {
            "way": self.options.way,
            "batch_size": self.options.batch_size,
            "calibrated_on": self.options.from_ and self.machine.label,
            "machine": self.machine.label,
            "host": {
                "cores": host.cores,
                "separate": host.separate,
                "bandwidth": self.options.network or self.options.links,
                "latency_s": host.latency_s,
            },
            "predictions": [row.to_json() for row in self.rows],
        }


def simulate_all(options: SimulateOptions) -> Simulation:
    """Predict a training for each number of workers and parameter servers.

    Raises:
        InputError: The options do not fit together, the config lacks a job, the run cannot
            calibrate, or a prediction was never validated and `beyond` is not set.
        LabError: The run cannot be read.
    """
    options.check()
    # Imported here: SimPy is a package of an extra.
    from lab.simulation.engine import simulate  # noqa: PLC0415

    given, way = options.cluster, Way(options.way)
    cluster = load_cluster(Path(given)) if isinstance(given, str) else given
    counts, machine = _counts(options, cluster), _machine(options)
    host = _host(options, cluster, machine)
    predicted = []
    for workers, ps in counts:
        shares = _shares(options.fault or (), workers)
        shape = Shape(way, workers, ps, options.batch_size, shares=shares)
        error = SHIPPED.error(machine, shape, host, shipped=options.from_ is None)
        if error.why and not options.beyond_validated:
            raise InputError(f"never validated: {error.why}", f"add {BEYOND} for unknown errors")
        predicted.append((shape, error))
    chance = {"seed": options.seed, "steps": options.steps}
    rows = [
        Row(simulate(shape, machine.costs, host, machine.ratios, **chance), error)
        for shape, error in predicted
    ]
    return Simulation(options, machine, host, rows)


def _machine(options: SimulateOptions) -> Machine:
    """Return the machine of the named run, or the shipped one."""
    if options.from_ is None:
        return SHIPPED.machine
    from lab.simulation.calibration import machine_of  # noqa: PLC0415  (imports SimPy)

    store = runs_path(options.runs_dir)
    with open_runs([options.from_], (), store) as runs:
        if len(runs) != 1:
            what = f"{short(options.from_)} has {counted(len(runs), 'run')}"
            raise InputError(what, "name one run")
        return machine_of(runs[0].directory, Way(options.way), options.cores, SHIPPED.machine)


def _counts(options: SimulateOptions, cluster: Cluster | None) -> list[tuple[int, int]]:
    """Return pairs of numbers of workers and parameter servers, from the options or the config."""
    served = "ps" in options.jobs
    if cluster is None:
        servers = options.ps or _PS if served else (0,)
        return [(workers, ps) for ps in servers for workers in options.workers or _WORKERS]
    tasks = {name: len(job.on) for name, job in cluster.jobs.items()}
    for job in options.jobs:
        if not tasks.get(job):
            name = options.cluster if isinstance(options.cluster, str) else cluster.name
            raise InputError(
                f"{short(name)} has no job {job!r}, which {options.way} needs",
                "use another config, or --workers and --ps",
            )
    return [(tasks["worker"], tasks["ps"] if served else 0)]


def _host(options: SimulateOptions, cluster: Cluster | None, machine: Machine) -> Host:
    """Return the host: the machine's cores, or its options; tasks on the nodes of the config."""
    separate = options.network is not None
    latency_s = options.latency or (units.delay_s(LATENCY) if separate else 0.0)
    nodes: tuple[int, ...] = ()
    if cluster is not None:
        names = list(cluster.nodes)
        nodes = tuple(names.index(node) for job in options.jobs for node in cluster.jobs[job].on)
    return Host(
        options.cores or machine.host.cores,
        options.network or options.links or float("inf"),
        latency_s,
        separate,
        nodes,
        options.step or 0.0,
    )


def _shares(faults: Sequence[Fault], workers: int) -> tuple[float, ...]:
    """Return the share of the time for which each worker runs."""
    if not faults:
        return ()
    shares = dict.fromkeys((f"worker-{number}" for number in range(workers)), 1.0)
    for each in faults:
        if each.target not in shares:
            count, missing = counted(workers, "worker"), short(each.target)
            what = f"fault {each.text!r}: with {count} there is no {missing}"
            raise InputError(what, "name a worker of each training")
        shares[each.target] = each.share
    return tuple(shares.values())


def _cells(row: Row) -> dict[str, str]:
    """Return a row of the table: column to text."""
    found, error = row.forecast, row.error
    shape, speed = found.shape, found.steps_per_s
    stale = {}
    if found.staleness is not None:
        stale = {">staleness": _figure(f"{found.staleness:.1f}", error.staleness)}
    return {
        ">work-\ners": str(shape.workers),
        **({">ps": str(shape.ps)} if shape.ps else {}),
        ">steps/s": _figure(rate(speed) if speed >= 10 else f"{speed:.2f}", error.steps_per_s),  # noqa: PLR2004
        ">images/s": _figure(rate(found.images_per_s), error.steps_per_s),
        **stale,
        "limit": found.limit,
    }


def _figure(value: str, error: float | None) -> str:
    """Return a figure with its error: `463 ±15%`."""
    return f"{value} no known error" if error is None else f"{value} ±{error:.0%}"
