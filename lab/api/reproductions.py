"""Reproduce from Python: `lab reproduce` without its command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from lab import units
from lab.api.args import check_backend, check_main_thread, parse_arg
from lab.api.planning import AnyPath, project
from lab.api.progress import discard, follow
from lab.api.results import Run, Runs, runs_path
from lab.api.tables import Shown
from lab.backends.names import AUTO, LOCAL
from lab.config import Cluster
from lab.console import output
from lab.errors import InputError
from lab.experiments.registry import MAX_SEED
from lab.extras import named_extras
from lab.reproduce.claims import COUNTED, NAMES, load
from lab.service.reproduce import (
    CONFIG,
    MAX_REPEATS,
    ReproduceOptions,
    ended_runs,
    plan_reproduction,
)
from lab.text import short, suggestion, visible

if TYPE_CHECKING:
    import pandas as pd

    from lab.reproduce.verdicts import Result
    from lab.service.evaluation import Evaluation


@dataclass(frozen=True, slots=True, repr=False)
class Reproduction(Shown):
    """The results of a source's claims.

    Attributes:
        evaluation: The results, also as JSON in `json`.
        runs: The runs that the claims used.
    """

    evaluation: Evaluation
    runs: Runs

    @property
    def claims(self) -> list[Result]:
        """The result of each claim."""
        return self.evaluation.results

    @property
    def reproduced(self) -> bool:
        """Whether every counted claim is REPRODUCED."""
        return all(each.verdict == "REPRODUCED" for each in self.claims if each.kind in COUNTED)

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each claim, with the fields of `lab reproduce --json`."""
        import pandas as pd  # noqa: PLC0415

        return pd.json_normalize([asdict(claim) for claim in self.claims])

    def _shown(self) -> Group:
        from lab.reproduce import view  # noqa: PLC0415

        source = self.evaluation.source
        return Group(
            Text(visible(f"{source.name}: {source.title}")),
            view.results_table(source, self.claims),
            Text(view.summary(self.claims)),
        )


@named_extras()
def reproduce(
    name: str,
    *,
    repeats: int | None = None,
    quick: bool = False,
    seed: int = 1,
    runs: Sequence[Run | str] | None = None,
    cluster: Cluster | AnyPath | None = None,
    backend: str = LOCAL,
    gpus: str = AUTO,
    runs_dir: AnyPath | None = None,
    quiet: bool = False,
) -> Reproduction:
    """Run the trainings that a source describes, and evaluate each of its claims.

    Args:
        name: The source, such as `book-async`.
        repeats: The most runs of each kind; None: as many as the claims need.
        quick: Use the quick listings, and leave out the longest runs.
        seed: The seed of the first repeat; each further repeat adds 1.
        runs: Evaluate these runs, and start none; then the arguments of new runs have no effect.
        cluster: The config, or its file; None: `clusters/book.yaml` of the project.
        backend: `local` (processes), `compose` (containers), or `auto`.
        gpus: How GPUs are pinned: `auto`, `uuid`, `index` or `none`.
        runs_dir: The run store; None: `LAB_RUNS_DIR`, or `./runs`.
        quiet: Print nothing.

    Returns:
        The results. A claim that does not hold is a result, not an error.

    Raises:
        InputError: An argument is invalid; nothing was started.
        LabError: The first run failed, or a run could not be executed.
        KeyboardInterrupt: The user interrupted the runs.
    """
    if name not in NAMES:
        raise InputError(
            f"no source {short(name)!r}", f"{suggestion(name, NAMES)}use one of {', '.join(NAMES)}"
        )
    source, store, out = load(name), runs_path(runs_dir), output()
    report = discard if quiet else out.notify
    if runs is not None:
        names = [str(each.path) if isinstance(each, Run) else each for each in runs]
        found = ended_runs(names, store, report)
        if not found:
            raise InputError("runs: there is no run", "give one run or several")
    else:
        check_main_thread("reproduce")
        check_backend(backend)
        options = ReproduceOptions(
            backend,
            gpus,
            None
            if repeats is None
            else parse_arg("repeats", units.whole(1, MAX_REPEATS), str(repeats)),
            parse_arg("seed", units.whole(0, MAX_SEED), str(seed)),
            quick,
        )
        batches = plan_reproduction(options, source, project(cluster, CONFIG), store, report)
        outcome = follow(batches, store, out, quiet=quiet)
        if outcome.stopped is not None:
            raise outcome.stopped
        found = outcome.begun
    from lab.service.evaluation import evaluate  # noqa: PLC0415  (SciPy takes a second)

    evaluation = evaluate(source, found, report)
    report(f"{source.name}: {evaluation.save(store)}")
    used = {name for by_seed in evaluation.json["runs"].values() for name in by_seed.values()}
    return Reproduction(evaluation, Runs(run for run in map(Run, found) if run.id in used))
