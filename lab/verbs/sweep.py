"""`lab sweep EXPERIMENT --over "…"`.

Trends are tested along the first quantity of --over, with the others held constant.
`workers` varies the number of tasks of job `worker`. All points use the same seeds.

Examples:
    # the effect of stale gradients on the loss
    lab sweep staleness --over "workers=1,2,4" --cluster clusters/laptop.yaml
    # write one CSV row per run
    lab sweep async --over "batch_size=50,100" --repeats 1 --epochs 1 --csv b.csv
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table

from lab.backends.names import AUTO
from lab.base.console import messages_shown, output
from lab.base.converters import whole
from lab.base.errors import LabError
from lab.base.files import check_output, write_output
from lab.base.formatting import counted
from lab.base.options import Argument, Flag, ProgramArguments, reads_options
from lab.base.shipped import named_extras
from lab.cluster.project import AnyPath
from lab.protocol.volume import RunSpec
from lab.protocol.volume.layout import STALL_S
from lab.runner.store.directory import runs_path
from lab.study.batches import RunResult, run_batches, run_count
from lab.study.sweep import MAX_REPEATS, REPEATS, check_succeeded, parse_over, plan_sweep
from lab.verbs.common_options import BackendName, Force, GpuMode, OwnOptions, RunsDir, Stall
from lab.verbs.inputs import Config, check_main_thread, place_options, program_args, project
from lab.verbs.printing import Called, Tabular, print_result, prints
from lab.verbs.results import Run, Runs, check_not_stopped
from lab.verbs.run import FURTHER_FLAGS, program_flags

if TYPE_CHECKING:
    import pandas as pd

    from lab.study.sweep_statistics import Setting, Trend

Values = str | int | float | Sequence[object]
"""One value of a quantity, or several."""


@dataclass(frozen=True, repr=False)
class Sweep(Tabular):
    """The runs of a sweep.

    Attributes:
        along: The quantity whose trends are tested.
        results: The point and the summary of each run.
        runs: The runs.
        planned: The number of runs that were planned.
        stopped: Why the sweep stopped before its end; None: it did not.
    """

    along: str
    results: Sequence[RunResult]
    runs: Runs
    planned: int
    stopped: BaseException | None = None

    @cached_property
    def settings(self) -> list[Setting]:
        """The mean of each metric with its interval, for each combination of values."""
        from lab.study.sweep_statistics import means  # noqa: PLC0415  (SciPy takes a second)

        return means(self.results)

    @cached_property
    def trends(self) -> list[Trend]:
        """Whether each metric rises or falls with the quantity `along`."""
        from lab.study.sweep_statistics import trends  # noqa: PLC0415

        return list(trends(self.results, self.along))

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each run: `run_id`, `state`, its values, `repeat` and its metrics."""
        import pandas as pd  # noqa: PLC0415

        from lab.study.sweep_statistics import run_rows  # noqa: PLC0415

        frame = pd.DataFrame(run_rows(self.results)).replace("", None)
        for name in frame.columns.difference(["run_id", "state"]):
            try:
                frame[name] = pd.to_numeric(frame[name])
            except ValueError:  # a quantity may be a text, such as model=mlp
                continue
        return frame

    def check(self) -> None:
        """Check that it has not stopped, and that every run succeeded.

        Raises:
            LabError: A run did not, or the reason of the stop.
        """
        done = f"{len(self.results)} of {counted(self.planned, 'run')}"
        check_not_stopped(self.stopped, f"the sweep was interrupted after {done}")
        check_succeeded(self.results)

    def to_json(self) -> Any:  # noqa: ANN401  (an object)
        """Return what `lab sweep --json` prints."""
        from lab.study.sweep_statistics import as_json  # noqa: PLC0415

        return as_json(self.results, self.settings, self.trends)

    def _shown(self) -> Iterator[Table | str]:
        from lab.study.sweep_statistics import settings_table, trends_table  # noqa: PLC0415

        yield settings_table(self.results, self.settings)
        if self.trends:
            yield from ("", trends_table(self.trends))
        if (count := len(self.trends)) > 1:
            line = f"Each p is for one trend alone: of {count}, some may be small by chance."
            yield from ("", line)


@reads_options
def sweep(  # noqa: D417  (the decorator adds those of common_options)
    experiment: Annotated[str, Argument()],
    over: Annotated[
        str | Mapping[str, Values], Flag(parse=parse_over, shows="QUANTITIES", separator="; ")
    ],
    *,
    repeats: Annotated[int, Flag(parse=whole(1, MAX_REPEATS), shows="N")] = REPEATS,
    cluster: Config = None,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    stall: Stall = STALL_S,
    args: Annotated[Sequence[str], ProgramArguments(FURTHER_FLAGS, program_flags)] = (),
    runs_dir: RunsDir = None,
    csv: Annotated[AnyPath | None, Flag(shows="FILE")] = None,
    force: Force = False,
    check: bool = True,
    quiet: bool = False,
    **flags: object,
) -> Sweep:
    """Run an experiment at every point of a grid, and test for trends.

    Ctrl-C cancels the current run. The runs that have
    ended stay in the run store.

    Args:
        experiment: An experiment (`lab experiments` lists them).
        over: Values to try: workers=1,2,4; learning_rate=0.1,1.
        repeats: The number of runs at each point, each with its own seed.
        args: Flags of the program as texts: `["--epochs=3"]`.
        csv: Write a row for each run to this file.
        check: Whether a sweep that was stopped is an error; otherwise `stopped` has the reason.
        quiet: Print nothing but warnings.
        **flags: Flags of the program: `epochs=3`.

    Returns:
        The sweep. A run may have failed: a notice and the table show it.

    Raises:
        InputError: An argument is invalid; nothing was started.
        LabError: With `check`: the first run failed, or a run could not be executed.
        KeyboardInterrupt: With `check`: the user interrupted the sweep.
    """
    check_main_thread("sweep")
    given, out = locals(), output()
    with messages_shown(out, quiet=quiet):
        swept = _swept(given, flags)
    if check and swept.stopped is not None:
        raise swept.stopped
    try:
        check_succeeded(swept.results if check else ())
    except LabError as error:
        out.show(str(error))
    return swept


def _swept(given: Mapping[str, Any], flags: Mapping[str, object]) -> Sweep:
    """Do what `sweep` says, with its arguments; also with `check`, a stop is a result here."""
    experiment, csv, over = given["experiment"], given["csv"], given["over"]
    if csv is not None:
        check_output("--csv", Path(csv), _is_table, force=given["force"])
    args = (*program_args(experiment, flags), *given["args"])
    batches = plan_sweep(
        RunSpec(experiment, args=args, stall_s=given["stall"]),
        place_options(given),
        over,
        given["repeats"],
        project=project(given["cluster"]),
        runs_dir=runs_path(given["runs_dir"]),
    )
    outcome = run_batches(batches)
    if csv is not None and outcome.results:
        # Imported here: importing SciPy takes a second.
        from lab.study.sweep_statistics import as_csv  # noqa: PLC0415

        write_output(Path(csv), as_csv(outcome.results).encode())
    return Sweep(
        along=next(iter(over)),
        results=outcome.results,
        runs=Runs(map(Run, outcome.begun)),
        planned=run_count(batches),
        stopped=outcome.stopped,
    )


def _is_table(begin: bytes) -> bool:
    """Whether a file that begins with these bytes is the table of an earlier sweep."""
    return begin.startswith(b"run_id,state,")


def _present(called: Called, *, json: bool) -> None:
    swept: Sweep = called()
    if swept.results:
        print_result(swept, json=json)
    swept.check()


command = prints(sweep, _present, json="print all results as JSON", check=False)
