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

from typing import Annotated

from lab import units
from lab.cli.arguments import Argument, Flag
from lab.cli.options import AsJson
from lab.cli.param_types import one_of, whole
from lab.console import notify, print_json
from lab.run.tables import show
from lab.service.simulate import (
    LATENCY,
    MAX_CORES,
    MAX_PS,
    MAX_WORKERS,
    SimulateOptions,
    simulate_all,
)


def command(  # longer than 60 lines: the parameters are the command line
    *,
    way: Annotated[
        str, Argument("async, sync or multiworker", one_of("async", "sync", "multiworker"))
    ],
    workers: Annotated[
        tuple[int, ...] | None,
        Flag(
            "numbers of workers: 1,8,64 (default: 1,2,4,8)",
            units.counts(MAX_WORKERS),
            shows="COUNTS",
        ),
    ] = None,
    ps: Annotated[
        tuple[int, ...] | None,
        Flag(
            "numbers of parameter servers: 1,4 (default: 1)", units.counts(MAX_PS), shows="COUNTS"
        ),
    ] = None,
    cluster: Annotated[
        str | None, Flag("take workers, ps and nodes from a cluster config", shows="FILE")
    ] = None,
    network: Annotated[
        float | None,
        Flag(
            "each task on its own host in this network: 100gbit (default: one host)",
            units.bytes_per_s,
            "RATE",
        ),
    ] = None,
    latency: Annotated[
        float | None, Flag(f"latency between two hosts (default: {LATENCY})", units.delay_s, "TIME")
    ] = None,
    cores: Annotated[
        int | None,
        Flag("CPU cores of each host (default: as on this host)", whole(1, MAX_CORES), shows="N"),
    ] = None,
    step: Annotated[
        float | None,
        Flag("time of a GPU for a batch: 2ms (default: CPUs, as measured)", units.step_s, "TIME"),
    ] = None,
    batch_size: Annotated[
        int, Flag("the number of images in a worker's batch", whole(1, 1_000_000), shows="N")
    ] = 100,
    json: AsJson = False,
) -> None:
    """Predict the speed of a training by a simulation of its steps."""
    simulation = simulate_all(
        SimulateOptions(
            way=way,
            workers=workers,
            ps=ps,
            cluster=cluster,
            network=network,
            latency_s=latency,
            cores=cores,
            step_s=step,
            batch_size=batch_size,
        )
    )
    if json:
        print_json(simulation.to_json())
        return
    show(simulation.table())
    notify("predicted, not measured: docs/scaling.md describes the method and its errors")
