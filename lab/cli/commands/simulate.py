"""`lab simulate WAY`.

No model is trained. Every figure is a prediction for softmax regression on MNIST, with
the error that such predictions had. docs/scaling.md has the measurements. --from RUN
calibrates on a run of your own machine, such as --from last; without it, the shipped
machine is simulated. What was never validated needs --beyond-validated, and has no known
error.

Examples:
    # the shipped machine with more workers
    lab simulate async --workers 2,4,8
    # a slow worker, whose error may not be known
    lab simulate sync --workers 4 --fault "slow:0.5 worker-1" --beyond-validated
    # a host for each task, and GPUs that take 2 ms for a batch
    lab simulate async --workers 8,64 --network 100gbit --step 2ms --beyond-validated
"""

from __future__ import annotations

from typing import Annotated

from lab import units
from lab.console import notify, print_json
from lab.experiments.faults import Fault
from lab.options import Argument, Flag, Switch
from lab.options.shared import AsJson, RunsDir
from lab.options.types import one_of, whole
from lab.run.fault_injection import parse_faults
from lab.service import simulate as service
from lab.tables import show


def command(  # longer than 60 lines: the parameters are the command line
    *,
    way: Annotated[str, Argument("async, sync or multiworker", one_of(*service.WAYS))],
    from_: Annotated[
        str | None,
        Flag("calibrate on this run: an id, last, or a directory", shows="RUN"),
    ] = None,
    workers: Annotated[
        tuple[int, ...] | None,
        Flag(
            "numbers of workers: 1,2,6 (default: 1,2,4,8)",
            units.counts(service.MAX_WORKERS),
            shows="COUNTS",
        ),
    ] = None,
    ps: Annotated[
        tuple[int, ...] | None,
        Flag(
            "numbers of parameter servers: 1,4 (default: 1)",
            units.counts(service.MAX_PS),
            shows="COUNTS",
        ),
    ] = None,
    cluster: Annotated[
        str | None, Flag("take workers, ps and nodes from a cluster config", shows="FILE")
    ] = None,
    links: Annotated[
        float | None,
        Flag("rate of each task's link on one host: 100mbit", units.bytes_per_s, "RATE"),
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
        float | None,
        Flag(
            f"latency between two nodes (default: {service.LATENCY} with --network, else none)",
            units.delay_s,
            "TIME",
        ),
    ] = None,
    cores: Annotated[
        int | None,
        Flag(
            "CPU cores of each host (default: as the run or the shipped machine)",
            whole(1, service.MAX_CORES),
            shows="N",
        ),
    ] = None,
    step: Annotated[
        float | None,
        Flag("time of a GPU for a batch: 2ms (default: CPUs, as measured)", units.step_s, "TIME"),
    ] = None,
    fault: Annotated[
        tuple[Fault, ...] | None,
        Flag("workers that are slow: slow:0.5 worker-1", parse_faults, shows="FAULTS"),
    ] = None,
    batch_size: Annotated[
        int, Flag("the number of images in a worker's batch", whole(1, 1_000_000), shows="N")
    ] = 100,
    steps: Annotated[
        int,
        Flag("the number of simulated steps of all workers", whole(1, 1_000_000), shows="N"),
    ] = service.STEPS,
    seed: Annotated[
        int, Flag("the seed of the random step times", whole(0, 2**31 - 1), shows="N")
    ] = 0,
    beyond_validated: Annotated[
        bool, Switch("also predict what was never validated, without a known error")
    ] = False,
    json: AsJson = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Predict the speed of a training, with the error of such predictions."""
    simulation = service.simulate_all(
        service.SimulateOptions(
            way=way,
            run=from_,
            workers=workers,
            ps=ps,
            cluster=cluster,
            links=links,
            network=network,
            latency_s=latency,
            cores=cores,
            step_s=step,
            batch_size=batch_size,
            faults=fault or (),
            steps=steps,
            seed=seed,
            beyond=beyond_validated,
            runs_dir=runs_dir_,
        )
    )
    if json:
        print_json(simulation.to_json())
        return
    show(simulation.table())
    for line in simulation.notes:
        notify(line)
