"""`lab sweep EXPERIMENT --over "…"`.

Whether a figure rises or falls is judged along the first quantity, while all the
others are held. `workers` varies the number of tasks of job `worker`. All points are
tried with the same seeds.

Examples:
    # the effect of late gradients on the loss
    lab sweep staleness --over "workers=1,2,4" --cluster clusters/laptop.yaml
    # a row for each run in a file
    lab sweep async --over "batch_size=50,100" --repeats 1 --epochs 1 --csv b.csv
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

from lab.backends.choose import AUTO
from lab.cli.arguments import Flag, Rest, Switch, Word
from lab.cli.commands.run import program_flags
from lab.cli.options import BackendName, ClusterFile, Force, GpuMode, RunsDir
from lab.cli.output import print_json, say
from lab.cli.sweeping import Asked
from lab.cli.times import duration
from lab.cli.values import whole
from lab.config import load_cluster
from lab.errors import InterruptError, LabError
from lab.outputs import check_output, write_output
from lab.run import project
from lab.run.cells import show
from lab.run.directory import runs_dir
from lab.sweep.grid import check_over, grid, parse_over
from lab.sweep.made import Made
from lab.sweep.making import Share, make
from lab.sweep.progress import counting
from lab.task.parameters import hyperparameters
from lab.task.protocol import STALL_S

MOST: Final = 1000
"""Repeats; who wants more of them wants another tool."""


def command(
    *,
    experiment: Annotated[str, Word("an experiment (`lab experiments` lists them)")],
    over: Annotated[
        Mapping[str, tuple[str, ...]],
        Flag("what is varied: workers=1,2,4; learning_rate=0.1,1", parse_over, shows="QUANTITIES"),
    ],
    repeats: Annotated[
        int, Flag("runs at each point, each with a seed of its own", whole(1, MOST), shows="N")
    ] = 3,
    backend: BackendName = AUTO,
    cluster: ClusterFile = None,
    gpus: GpuMode = AUTO,
    stall: Annotated[
        float,
        Flag("fail when no step is made for so long: 90s, 5m; 0: never", duration, shows="TIME"),
    ] = STALL_S,
    csv: Annotated[str | None, Flag("write a row for each run to this file", shows="FILE")] = None,
    force: Force = False,
    json: Annotated[bool, Switch("print all figures as JSON on stdout")] = False,
    runs_dir_: RunsDir = None,
    rest: Annotated[
        tuple[str, ...], Rest("flags of the programs, see `lab experiments`", program_flags)
    ] = (),
) -> None:
    """Run an experiment at every point of a grid, and say what follows from what."""
    wanted = project.experiment(experiment)
    check_over(over, wanted, hyperparameters(wanted, rest))
    path = project.cluster_path(cluster)
    described = load_cluster(path)
    root = project.find_root(path)
    project.check_jobs(wanted, described, path, root)
    project.check_program(wanted, root)
    if csv is not None:
        check_output("--csv", Path(csv), _is_table, force=force)
    home = runs_dir(runs_dir_)
    points = grid(over, repeats)
    ask = Asked(wanted, rest, described, path, root, backend, gpus, stall)
    shares: list[Share] = []
    for _, several in groupby(points, key=lambda point: point.workers):
        # All have the same backend: to say so once is enough.
        shares.append(ask.share(list(several), home, say if not shares else _unheard))
    made: list[Made] = []
    with counting(len(points), say) as counter:
        try:
            for share in shares:
                make(share, home, counter, made)
        except KeyboardInterrupt:
            stopped: LabError | OSError | None = InterruptError(
                f"the sweep was interrupted after {len(made)} of {len(points)} runs",
                "those that were made are at home, see `lab runs`",
            )
        except (LabError, OSError) as error:
            stopped = error
        else:
            stopped = None
    try:
        if made:
            _tell(made, next(iter(over)), json=json, csv=csv)
    finally:
        if stopped is not None:
            raise stopped
    _judge(made)


def _is_table(begin: bytes) -> bool:
    """Whether a file that begins so is the table of an earlier sweep."""
    return begin.startswith(b"run_id,state,")


def _unheard(_line: str) -> None:
    """Nothing is said."""


def _tell(made: Sequence[Made], along: str, *, json: bool, csv: str | None) -> None:
    """Print the tables, and write the file that was asked for."""
    # SciPy costs a second: only where something is to be counted.
    from lab.sweep.figures import means, trends  # noqa: PLC0415
    from lab.sweep.view import as_csv, as_json, settings_table, trends_table  # noqa: PLC0415

    settings, found = means(made), list(trends(made, along))
    if csv is not None:
        write_output(Path(csv), as_csv(made).encode())
    if json:
        print_json(as_json(made, settings, found))
        return
    show(settings_table(made, settings))
    if found:
        print()
        show(trends_table(found))
    if len(found) > 1:
        print(f"\nEach p is for one trend by itself: among {len(found)}, some are small by chance.")


def _judge(made: Sequence[Made]) -> None:
    """See that every run succeeded, and has found what it has to find.

    Raises:
        LabError: One has not.
    """
    bad = [each for each in made if not (each.succeeded and each.summary.as_expected)]
    if bad:
        raise LabError(
            f"{len(bad)} of {len(made)} runs did not succeed, or found what they should not",
            f"see the first of them with `lab show {bad[0].summary.run_id}`",
        )
