"""`lab sweep EXPERIMENT --over "…"`.

The first quantity of --over is tested for trends, while the others are constant.
`workers` varies the number of tasks of job `worker`. All points use the same seeds.

Examples:
    # the effect of stale gradients on the loss
    lab sweep staleness --over "workers=1,2,4" --cluster clusters/laptop.yaml
    # write a row for each run to a file
    lab sweep async --over "batch_size=50,100" --repeats 1 --epochs 1 --csv b.csv
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from lab.api.training import FURTHER_FLAGS, program_flags
from lab.backends.names import AUTO
from lab.console import notify, print_json
from lab.errors import InterruptError
from lab.formatting import counted
from lab.options import Argument, Flag, ProgramArguments, Switch
from lab.options.durations import duration
from lab.options.shared import BackendName, ClusterFile, Force, GpuMode, RunsDir
from lab.options.types import whole
from lab.outputs import check_output, write_output
from lab.service.batches import run_batches, run_count
from lab.service.planning import Project
from lab.service.run import RunOptions
from lab.service.sweep import MAX_REPEATS, REPEATS, SweepOptions, check_succeeded, plan_sweep
from lab.store.directory import runs_dir
from lab.sweep.grid import parse_over
from lab.sweep.results import RunResult
from lab.tables import show
from lab.volume import STALL_S, RunSpec


def command(
    *,
    experiment: Annotated[str, Argument("an experiment (`lab experiments` lists them)")],
    over: Annotated[
        Mapping[str, tuple[str, ...]],
        Flag("values to try: workers=1,2,4; learning_rate=0.1,1", parse_over, shows="QUANTITIES"),
    ],
    repeats: Annotated[
        int,
        Flag(
            "the number of runs at each point, each with its own seed",
            whole(1, MAX_REPEATS),
            shows="N",
        ),
    ] = REPEATS,
    backend: BackendName = AUTO,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    stall: Annotated[
        float,
        Flag("fail after this time without a step: 90s, 5m; 0: never", duration, shows="TIME"),
    ] = STALL_S,
    csv: Annotated[str | None, Flag("write a row for each run to this file", shows="FILE")] = None,
    force: Force = False,
    json: Annotated[bool, Switch("print all results as JSON")] = False,
    runs_dir_: RunsDir = None,
    rest: Annotated[
        tuple[str, ...],
        ProgramArguments(FURTHER_FLAGS, program_flags),
    ] = (),
) -> None:
    """Run an experiment at every point of a grid, and test for trends."""
    project = Project.load(cluster)
    if csv is not None:
        check_output("--csv", Path(csv), _is_table, force=force)
    store = runs_dir(runs_dir_)
    spec = RunSpec(experiment, args=rest, stall_s=stall)
    each = RunOptions(spec=spec, backend=backend, gpus=gpus)
    batches = plan_sweep(SweepOptions(each, over, repeats), project, store, notify)
    outcome = run_batches(batches, store, notify)
    try:
        if outcome.results:
            _show(outcome.results, next(iter(over)), json=json, csv=csv)
    finally:
        if isinstance(outcome.stopped, KeyboardInterrupt):
            raise InterruptError(
                f"the sweep was interrupted after {len(outcome.results)}"
                f" of {counted(run_count(batches), 'run')}",
                "see the collected runs with `lab runs`",
            )
        if outcome.stopped is not None:
            raise outcome.stopped
    check_succeeded(outcome.results)


def _is_table(begin: bytes) -> bool:
    """Whether a file that begins with these bytes is the table of an earlier sweep."""
    return begin.startswith(b"run_id,state,")


def _show(results: Sequence[RunResult], along: str, *, json: bool, csv: str | None) -> None:
    """Print the tables, and write the file of --csv."""
    # Imported here: importing SciPy takes a second.
    from lab.sweep.statistics import means, trends  # noqa: PLC0415
    from lab.sweep.view import as_csv, as_json, settings_table, trends_table  # noqa: PLC0415

    settings, found = means(results), list(trends(results, along))
    if csv is not None:
        write_output(Path(csv), as_csv(results).encode())
    if json:
        print_json(as_json(results, settings, found))
        return
    show(settings_table(results, settings))
    if found:
        print()
        show(trends_table(found))
    if len(found) > 1:
        print(f"\nEach p is for one trend alone: of {len(found)}, some may be small by chance.")
