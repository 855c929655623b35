"""`lab reproduce NAME`.

REPRODUCED       a statement, or a number within the range of one more run of ours
INCONCLUSIVE     too few runs, or a range that is too wide to decide (exit code 3)
NOT_REPRODUCED   outside the range, or the opposite of a statement (exit code 1)
OK, FAILED, UNCLEAR: settings and checks of our own, which do not decide the exit code.
docs/reproduce.md has the rules.

Examples:
    # all claims on a training, by the quick listings
    lab reproduce book-async --quick
    # a first look with two runs of each kind
    lab reproduce book-sync --quick --repeats 2
    # evaluate the newest run, and print JSON
    lab reproduce book-async --runs last --json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from lab.backends.names import AUTO
from lab.console import notify, print_json
from lab.errors import InputError, InterruptError, LabError
from lab.experiments.registry import MAX_SEED
from lab.options import Argument, Flag, Switch
from lab.options.shared import BackendName, GpuMode, RunsDir
from lab.options.types import one_of, whole
from lab.project import Project
from lab.reproduce.claims import ALL, NAMES, Source, load
from lab.service.batches import run_batches, run_count
from lab.service.reproduce import (
    CONFIG,
    MAX_REPEATS,
    ReproduceOptions,
    ended_runs,
    plan_reproduction,
)
from lab.store.directory import RunDir, runs_dir
from lab.tables import show

if TYPE_CHECKING:
    from lab.service.evaluation import Evaluation


def _runs(raw: str) -> tuple[str, ...]:
    """Parse names of runs, separated by commas or spaces."""
    found = tuple(raw.replace(",", " ").split())
    if not found:
        raise ValueError("runs, such as last or 20261122-1533,20261122-1534")
    return found


def command(  # longer than 60 lines: the parameters are the command line
    *,
    name: Annotated[
        str, Argument(f"what to reproduce: {', '.join(NAMES)} or all", one_of(*NAMES, ALL))
    ],
    repeats: Annotated[
        int | None,
        Flag(
            "fewer runs of each kind than the claims need, for a first look (default: all)",
            whole(1, MAX_REPEATS),
            shows="N",
        ),
    ] = None,
    quick: Annotated[
        bool, Switch("use the quick listings, and leave out the longest runs")
    ] = False,
    seed: Annotated[
        int | None,
        Flag(
            "the seed of the first repeat; each further repeat adds 1 (default: 1)",
            whole(0, MAX_SEED),
            shows="N",
        ),
    ] = None,
    runs: Annotated[
        tuple[str, ...] | None,
        Flag(
            "evaluate these runs (ids, or directories of one or many), start none",
            _runs,
            shows="RUN,RUN",
        ),
    ] = None,
    backend: BackendName = AUTO,
    cluster: Annotated[
        str | None, Flag(f"the cluster config (default: {CONFIG})", shows="FILE")
    ] = None,
    gpus: GpuMode = AUTO,
    json: Annotated[bool, Switch("print the results of all claims as JSON")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Run the trainings that a source describes, and evaluate each of its claims."""
    store = runs_dir(runs_dir_)
    sources = [load(each) for each in (NAMES if name == ALL else (name,))]
    if runs is not None:
        for flag, given in (("--repeats", repeats), ("--quick", quick or None), ("--seed", seed)):
            if given is not None:
                raise InputError(f"{flag} is only for new runs", f"leave out {flag} or --runs")
        unique = ended_runs(runs, store, notify)
        _finish([_evaluate(each, unique, store, strict=name != ALL) for each in sources], json=json)
        return
    options = ReproduceOptions(backend, gpus, repeats, 1 if seed is None else seed, quick)
    project = Project.load(cluster or CONFIG)
    evaluations = []
    for source in sources:
        batches = plan_reproduction(options, source, project, store, notify)
        outcome = run_batches(batches, store, notify)
        begun = [run for run in outcome.begun if run.path.is_dir()]  # others did not start
        if begun:
            evaluations.append(_evaluate(source, begun, store))
        if outcome.stopped is None:
            continue
        _show(evaluations, json=json)
        if isinstance(outcome.stopped, KeyboardInterrupt):
            total = run_count(batches)
            raise InterruptError(
                f"interrupted in run {len(outcome.begun)} of {total} for {source.name}",
                "see the collected runs with `lab runs`",
            )
        raise outcome.stopped
    _finish(evaluations, json=json)


def _evaluate(
    source: Source, runs: Sequence[RunDir], runs_dir: Path, *, strict: bool = True
) -> Evaluation:
    """Evaluate runs and save the result; print a result that cannot be saved."""
    # Imported here: importing SciPy takes a second.
    from lab.service.evaluation import evaluate  # noqa: PLC0415

    found = evaluate(source, runs, notify, strict=strict)
    try:
        notify(f"{source.name}: {found.save(runs_dir)}")
    except LabError:
        _show([found], json=False)
        raise
    return found


def _show(evaluations: Sequence[Evaluation], *, json: bool) -> None:
    """Print the results of the claims: a table for each source, or all as JSON."""
    from lab.reproduce import view  # noqa: PLC0415

    if json:
        results = [each.json for each in evaluations]
        print_json(results[0] if len(results) == 1 else results)
        return
    for each in evaluations:
        print(f"{each.source.name}: {each.source.title}\n")
        show(view.results_table(each.source, each.results))
        print(f"\n{view.summary(each.results)}")


def _finish(evaluations: Sequence[Evaluation], *, json: bool) -> None:
    """Print the results of the claims; raise an error if a counted claim is not reproduced."""
    from lab.service.evaluation import check_reproduced  # noqa: PLC0415

    _show(evaluations, json=json)
    check_reproduced(evaluations)
