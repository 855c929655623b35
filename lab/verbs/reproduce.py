"""`lab reproduce NAME`.

REPRODUCED       the statement holds, or the number is in the range for one more run of ours
INCONCLUSIVE     too few runs, or the range is too wide to decide (exit code 3)
NOT_REPRODUCED   the number is outside the range, or the opposite holds (exit code 1)
OK, FAILED, UNCLEAR: our own checks and settings, which do not affect the exit code.
See docs/how-to/reproduce.md for the rules.

Examples:
    # check all claims on a training with the quick listings
    lab reproduce book-async --quick
    # a first look with two runs of each kind
    lab reproduce book-sync --quick --repeats 2
    # evaluate the newest run, and print JSON
    lab reproduce book-async --runs last --json
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from lab.backends.names import AUTO
from lab.base.console import messages_shown, output
from lab.base.converters import one_of, whole
from lab.base.errors import InputError
from lab.base.log import LOG
from lab.base.options import Argument, Flag, Switch, given_flags, reads_options
from lab.base.shipped import named_extras
from lab.base.text import visible
from lab.cluster.config import Cluster
from lab.cluster.project import AnyPath
from lab.protocol.experiments.experiment import MAX_SEED
from lab.runner.store.directory import RunDir, runs_path
from lab.study.batches import run_batches, run_count
from lab.study.reproduce.claims import ALL, COUNTED, NAMES, Source, load
from lab.study.reproduce.plan import CONFIG, MAX_REPEATS, ended_runs, plan_reproduction
from lab.verbs.common_options import BackendName, GpuMode, OwnOptions, RunsDir
from lab.verbs.inputs import check_main_thread, place_options, project
from lab.verbs.printing import Tabular, prints
from lab.verbs.results import Run, Runs, check_not_stopped

if TYPE_CHECKING:
    import pandas as pd

    from lab.study.reproduce.verdicts import Evaluation, Result


@dataclass(slots=True, repr=False)
class Reproduction(Tabular):
    """The results of the claims of one source, or of all.

    Attributes:
        evaluations: The results of each source, also as JSON in `json`.
        runs: The runs that the claims used.
        stopped: Why it stopped before its end; None: it did not.
        reached: The run in which it stopped, such as `run 2 of 16 for book-async`.
    """

    evaluations: list[Evaluation] = field(default_factory=list)
    runs: Runs = field(default_factory=Runs)
    stopped: BaseException | None = None
    reached: str = ""

    @property
    def claims(self) -> list[Result]:
        """The result of each claim."""
        return [each for found in self.evaluations for each in found.claims]

    @property
    def reproduced(self) -> bool:
        """Whether every counted claim is REPRODUCED."""
        return all(each.verdict == "REPRODUCED" for each in self.claims if each.kind in COUNTED)

    @named_extras()
    def frame(self) -> pd.DataFrame:
        """Return a row for each claim: `source`, and the fields of `lab reproduce --json`."""
        import pandas as pd  # noqa: PLC0415

        rows = [
            {"source": found.name} | asdict(claim)
            for found in self.evaluations
            for claim in found.claims
        ]
        return pd.json_normalize(rows)

    def to_json(self) -> Any:  # noqa: ANN401  (an object for one source, else a list of them)
        """Return what `lab reproduce --json` prints."""
        results = [each.json for each in self.evaluations]
        return results[0] if len(results) == 1 else results

    def add(
        self, source: Source, runs: Sequence[RunDir], store: Path, *, strict: bool = True
    ) -> None:
        """Evaluate a source's claims on runs, and save the results; if this fails, it stops.

        Args:
            source: The claims.
            runs: The runs.
            store: The run store, which gets the file.
            strict: Whether a source without any run is an error.

        Raises:
            InputError: With `strict`, no claim can use any of the runs.
        """
        from lab.study.reproduce.verdicts import evaluate  # noqa: PLC0415  (SciPy takes a second)

        found = evaluate(source, runs, strict=strict)
        self.evaluations.append(found)
        ids = found.run_ids - {run.id for run in self.runs}
        self.runs += [Run(run) for run in runs if run.run_id in ids]
        try:
            LOG.info(f"{source.name}: {found.save(store)}")
        except OSError as error:
            self.stopped = self.stopped or error

    def check(self) -> None:
        """Check that it has not stopped, and that every counted claim is reproduced.

        Raises:
            LabError: One is not, or the reason of the stop.
        """
        # Imported here: importing SciPy takes a second.
        from lab.study.reproduce.verdicts import check_reproduced  # noqa: PLC0415

        check_not_stopped(self.stopped, f"interrupted in {self.reached}")
        check_reproduced(self.evaluations)

    def _shown(self) -> Iterator[Table | Text]:
        """Yield the title, the table and the summary of each source."""
        from lab.study.reproduce.verdicts import results_table  # noqa: PLC0415

        for place, found in enumerate(self.evaluations):
            title = visible(f"{found.name}: {found.source}")
            yield Text(f"\n{title}\n" if place else f"{title}\n")
            yield results_table(found)
            yield Text(f"\n{found.summary}")


def _run_names(raw: str) -> tuple[str, ...]:
    """Parse names of runs, separated by commas or spaces."""
    found = tuple(raw.replace(",", " ").split())
    if not found:
        raise ValueError("runs, such as last or 20261122-1533,20261122-1534")
    return found


@reads_options
def reproduce(  # noqa: D417  (the decorator adds those of common_options)
    name: Annotated[
        str, Argument(f"what to reproduce: {', '.join(NAMES)} or all", one_of(*NAMES, ALL))
    ],
    *,
    repeats: Annotated[int | None, Flag(parse=whole(1, MAX_REPEATS), shows="N")] = None,
    quick: Annotated[bool, Switch()] = False,
    seed: Annotated[int | None, Flag(parse=whole(0, MAX_SEED), shows="N")] = None,
    runs: Annotated[
        Sequence[Run | str] | str | None, Flag(parse=_run_names, shows="RUN,RUN", separator="")
    ] = None,
    cluster: Annotated[
        Cluster | AnyPath | None, Flag(f"the cluster config (default: {CONFIG})", shows="FILE")
    ] = None,
    backend: BackendName = AUTO,
    option: OwnOptions = (),
    gpus: GpuMode = AUTO,
    runs_dir: RunsDir = None,
    check: bool = True,
    quiet: bool = False,
) -> Reproduction:
    """Run the trainings that a source describes, and evaluate each of its claims.

    Args:
        name: The source, such as `book-async`, or `all`.
        repeats: Runs of each kind, for a first look (default: as many as the claims need).
        quick: Use the quick listings, and leave out the longest runs.
        seed: The seed of the first repeat; each further repeat adds 1 (default: 1).
        runs: Evaluate these runs (ids, or directories of one or many), start none.
        cluster: The config, or its file; None: `clusters/book.yaml` of the project.
        check: Whether a stop is an error; otherwise `stopped` has the reason.
        quiet: Print nothing but warnings.

    Returns:
        The results. A claim that does not hold is a result, not an error.

    Raises:
        InputError: An argument is invalid; nothing was started.
        LabError: With `check`: the first run failed, or a run could not be executed.
        KeyboardInterrupt: With `check`: the user interrupted the runs.
    """
    given = locals()
    store, out = runs_path(runs_dir), output()
    sources = [load(each) for each in (NAMES if name == ALL else (name,))]
    made = Reproduction()
    with messages_shown(out, quiet=quiet):
        if given["runs"] is not None:
            found = _given_runs(given, store)
            for source in sources:
                made.add(source, found, store, strict=name != ALL)
        else:
            check_main_thread("reproduce")
            _execute(made, sources, given, store)
    if check and made.stopped is not None:
        raise made.stopped
    return made


def _execute(
    made: Reproduction, sources: Sequence[Source], given: Mapping[str, Any], store: Path
) -> None:
    """Run the trainings of each source, and evaluate its claims, until one stops."""
    where = project(given["cluster"], CONFIG)
    place = place_options(given)
    for source in sources:
        batches = plan_reproduction(
            source, where, store, repeats=given["repeats"], quick=given["quick"],
            seed=1 if given["seed"] is None else given["seed"], place=place,
        )  # fmt: skip
        outcome = run_batches(batches)
        begun = [run for run in outcome.begun if run.path.is_dir()]  # others did not start
        made.stopped = outcome.stopped
        if begun:
            made.add(source, begun, store)
        if made.stopped is not None:
            total = run_count(batches)
            made.reached = f"run {len(outcome.begun)} of {total} for {source.name}"
            return


def _given_runs(given: Mapping[str, Any], store: Path) -> list[RunDir]:
    """Return the runs to evaluate.

    Raises:
        InputError: There is none, one has not ended, or an option for new runs is given, too.
    """
    for flag in given_flags(reproduce, given, "repeats", "quick", "seed"):
        raise InputError(f"{flag} is only for new runs", f"leave out {flag} or --runs")
    found = ended_runs(given["runs"], store)
    if not found:
        raise InputError("runs: no run given", "name one or more runs")
    return found


command = prints(reproduce, json="print the results of all claims as JSON", check=False)
