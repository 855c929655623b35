"""Sweep from Python: `lab sweep` without its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Group

from lab import units
from lab.api.args import check_backend, check_main_thread, parse_arg, program_args
from lab.api.planning import AnyPath, project
from lab.api.progress import discard, follow
from lab.api.results import Run, Runs, runs_path
from lab.api.tables import Shown
from lab.backends.names import AUTO, LOCAL
from lab.config import Cluster
from lab.console import output
from lab.errors import LabError
from lab.extras import named_extras
from lab.service.run import RunOptions
from lab.service.sweep import MAX_REPEATS, REPEATS, SweepOptions, check_succeeded, plan_sweep
from lab.sweep.grid import parse_over
from lab.sweep.results import RunResult
from lab.volume import STALL_S, RunSpec

if TYPE_CHECKING:
    import pandas as pd

    from lab.sweep.statistics import Setting, Trend

Values = str | int | float | Sequence[object]
"""One value of a quantity, or several."""


@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """The runs of a sweep.

    Attributes:
        along: The quantity whose trends are tested.
        results: The point and the summary of each run.
        runs: The runs.
    """

    along: str
    results: Sequence[RunResult]
    runs: Runs

    @cached_property
    def settings(self) -> list[Setting]:
        """The mean of each metric with its interval, for each combination of values."""
        from lab.sweep.statistics import means  # noqa: PLC0415  (SciPy takes a second)

        return means(self.results)

    @cached_property
    def trends(self) -> list[Trend]:
        """Whether each metric rises or falls with the quantity `along`."""
        from lab.sweep.statistics import trends  # noqa: PLC0415

        return list(trends(self.results, self.along))

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each run: `run_id`, `state`, its values, `repeat` and its metrics."""
        import pandas as pd  # noqa: PLC0415

        from lab.sweep.view import run_rows  # noqa: PLC0415

        frame = pd.DataFrame(run_rows(self.results)).replace("", None)
        for name in frame.columns.difference(["run_id", "state"]):
            try:
                frame[name] = pd.to_numeric(frame[name])
            except ValueError:  # a quantity may be a text, such as model=mlp
                continue
        return frame

    def _shown(self) -> Group:
        from lab.sweep.view import settings_table, trends_table  # noqa: PLC0415

        tables = [settings_table(self.results, self.settings)]
        return Group(*tables, *([trends_table(self.trends)] if self.trends else []))


@named_extras()
def sweep(
    experiment: str,
    over: str | Mapping[str, Values],
    *,
    repeats: int = REPEATS,
    cluster: Cluster | AnyPath | None = None,
    backend: str = LOCAL,
    gpus: str = AUTO,
    stall: float = STALL_S,
    runs_dir: AnyPath | None = None,
    quiet: bool = False,
    **flags: object,
) -> Sweep:
    """Run an experiment at every point of a grid, and test for trends.

    Ctrl-C cancels the current run. The runs that have ended stay in the run store.

    Args:
        experiment: An experiment; `lab experiments` lists them.
        over: Values to try: `{"workers": [1, 2, 4]}`, or `"workers=1,2,4; learning_rate=0.1,1"`.
            The first quantity is tested for trends.
        repeats: The number of runs at each point, each with its own seed.
        cluster: The config, or its file; None: the project's `cluster.yaml`.
        backend: `local` (processes), `compose` (containers), or `auto`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        stall: Seconds without a step after which a run fails; 0: no limit.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.
        quiet: Print nothing but warnings.
        **flags: Flags of the program: `epochs=3`.

    Returns:
        The sweep. A run may have failed: a notice and the table show it.

    Raises:
        InputError: An argument is invalid; nothing was started.
        LabError: The first run failed, or a run could not be executed.
        KeyboardInterrupt: The user interrupted the sweep.
    """
    check_main_thread("sweep")
    check_backend(backend)
    text = over if isinstance(over, str) else "; ".join(map(_line, over.items()))
    values = parse_arg("over", parse_over, text)
    count = parse_arg("repeats", units.whole(1, MAX_REPEATS), str(repeats))
    spec = RunSpec(experiment, args=program_args(experiment, flags), stall_s=stall)
    options = SweepOptions(RunOptions(spec=spec, backend=backend, gpus=gpus), values, count)
    store, out = runs_path(runs_dir), output()
    report = discard if quiet else out.notify
    batches = plan_sweep(options, project(cluster), store, report)
    outcome = follow(batches, store, out, quiet=quiet)
    if outcome.stopped is not None:
        raise outcome.stopped
    try:
        check_succeeded(outcome.results)
    except LabError as error:
        out.notify(str(error))
    return Sweep(next(iter(values)), outcome.results, Runs(map(Run, outcome.begun)))


def _line(item: tuple[str, Values]) -> str:
    """Return a quantity as on the command line: `workers=1,2,4`."""
    name, values = item
    several = [values] if isinstance(values, str | int | float) else values
    return f"{name}={','.join(map(str, several))}"
