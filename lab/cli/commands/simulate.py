"""`lab simulate WAY`.

No model is trained. Every figure is a prediction for softmax regression on MNIST,
computed from the measured time of each part of a step. docs/scaling.md compares
such predictions with measurements.

Examples:
    # a host for each task, and GPUs that take 2 ms for a batch
    lab simulate async --workers 1,8,64 --ps 1,4 --network 100gbit --step 2ms
    # the tasks of a config on this host, as JSON
    lab simulate sync --cluster clusters/book.yaml --json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

from lab import units as sizes
from lab.cli.arguments import Argument, Flag
from lab.cli.options import AsJson
from lab.cli.param_types import one_of, whole
from lab.console import notify, print_json
from lab.errors import InputError
from lab.formatting import percent
from lab.formatting import rate as rounded
from lab.run.tables import show, table_of

if TYPE_CHECKING:
    from lab.service.simulate import Row

MAX_WORKERS: Final = 512
MAX_PS: Final = 64
MAX_CORES: Final = 1024
LATENCY: Final = "20us"
_MAX_SHAPES: Final = 64


def up_to(most: int) -> Callable[[str], tuple[int, ...]]:
    """Return a parse function for numbers of tasks: `1,8,64`."""

    def parse(raw: str) -> tuple[int, ...]:
        try:
            found = tuple(dict.fromkeys(whole(1, most)(each.strip()) for each in raw.split(",")))
        except ValueError:
            raise ValueError(f"whole numbers from 1 to {most}, such as 1,8,64") from None
        return found

    return parse


def rate(raw: str) -> float:
    """Return the bytes per second of `100gbit`."""
    try:
        bits = sizes.parse(raw.lower(), sizes.RATE)
    except ValueError:
        bits = 0
    if not bits:
        raise ValueError("a rate such as 100gbit, or 25gbit")
    return bits / 8


def span(raw: str) -> float:
    """Return the seconds of `2ms` or `20us`."""
    try:
        return sizes.parse(raw, sizes.DELAY) / 1e6
    except ValueError:
        raise ValueError("a time such as 2ms, or 20us") from None


def duration(raw: str) -> float:
    """Return the seconds of `2ms`, more than 0."""
    seconds = span(raw)
    if not seconds:
        raise ValueError("a time such as 2ms, or 20us")
    return seconds


def command(  # longer than 60 lines: the parameters are the command line
    *,
    way: Annotated[
        str, Argument("async, sync or multiworker", one_of("async", "sync", "multiworker"))
    ],
    workers: Annotated[
        tuple[int, ...] | None,
        Flag("numbers of workers: 1,8,64 (default: 1,2,4,8)", up_to(MAX_WORKERS), shows="COUNTS"),
    ] = None,
    ps: Annotated[
        tuple[int, ...] | None,
        Flag("numbers of parameter servers: 1,4 (default: 1)", up_to(MAX_PS), shows="COUNTS"),
    ] = None,
    cluster: Annotated[
        str | None, Flag("take workers, ps and nodes from a cluster config", shows="FILE")
    ] = None,
    network: Annotated[
        float | None,
        Flag(
            "each task on its own host in this network: 100gbit (default: one host)", rate, "RATE"
        ),
    ] = None,
    latency: Annotated[
        float | None, Flag(f"latency between two hosts (default: {LATENCY})", span, "TIME")
    ] = None,
    cores: Annotated[
        int | None,
        Flag("CPU cores of each host (default: as on this host)", whole(1, MAX_CORES), shows="N"),
    ] = None,
    step: Annotated[
        float | None,
        Flag("time of a GPU for a batch: 2ms (default: CPUs, as measured)", duration, "TIME"),
    ] = None,
    batch_size: Annotated[
        int, Flag("the number of images in a worker's batch", whole(1, 1_000_000), shows="N")
    ] = 100,
    json: AsJson = False,
) -> None:
    """Predict the speed of a training by a simulation of its steps."""
    if way == "multiworker" and ps is not None:
        raise InputError("multiworker has no parameter servers", "leave out --ps")
    if cluster is not None and (workers is not None or ps is not None):
        raise InputError(
            "--cluster already sets the number of tasks", "leave out --workers and --ps"
        )
    if latency is not None and network is None:
        raise InputError("--latency needs a network", "add --network, or leave out --latency")
    counts, servers = workers or (1, 2, 4, 8), ps or (1,)
    if len(counts) * len(servers) > _MAX_SHAPES:
        raise InputError(
            f"{len(counts)} times {len(servers)} trainings are too many",
            f"use {_MAX_SHAPES} or fewer",
        )
    # Imported here: wrong arguments are reported without SimPy.
    from lab.service.simulate import SimulateOptions, simulate_all  # noqa: PLC0415
    from lab.simulation import Way  # noqa: PLC0415

    simulation = simulate_all(
        SimulateOptions(
            way=Way(way),
            workers=counts,
            ps=servers,
            cluster=cluster,
            network=network,
            latency_s=span(LATENCY) if latency is None else latency,
            cores=cores,
            step_s=step,
            batch_size=batch_size,
        )
    )
    if json:
        print_json(simulation.to_json())
        return
    rows = [_cells(row) for row in simulation.rows]
    show(table_of(list(rows[0]), [list(row.values()) for row in rows]))
    notify("predicted, not measured: docs/scaling.md describes the method and its errors")


def _cells(row: Row) -> dict[str, str]:
    """Return a row of the table: column to text."""
    found = row.forecast
    speed = found.steps_per_s
    stale = {} if found.staleness is None else {">stale": f"{found.staleness:.1f}"}
    return {
        ">workers": str(found.shape.workers),
        **({">ps": str(found.shape.ps)} if found.shape.ps else {}),
        ">steps/s": rounded(speed) if speed >= 10 else f"{speed:.2f}",  # noqa: PLR2004
        ">images/s": rounded(found.images_per_s),
        ">efficiency": percent(row.efficiency),
        **stale,
        ">busiest\ncores": percent(found.cores_busy),
        ">busiest\nlink": percent(found.link_busy),
        ">bytes\nper step": f"{found.wire_bytes / 1e3:,.1f} kB",
    }
