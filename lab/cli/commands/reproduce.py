"""`lab reproduce NAME`.

PASS                as the source claims
OUTSIDE_BAND        it is not (exit code 1)
TOO_GOOD            better than this training can be (exit code 1)
INSUFFICIENT_RUNS   too few runs to tell (exit code 3)
NOT_COMPARABLE      the source prints nothing, or the runs were shorter (3)
docs/reproduce.md explains how each band was derived.

Examples:
    # three trainings of the chapter, for a class
    lab reproduce book-async --quick
    # a run that exists already; for a program
    lab reproduce book-async --runs last --json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from rich.text import Text

from lab.backends.selection import AUTO
from lab.cli.arguments import Argument, Flag, Switch
from lab.cli.options import BackendName, GpuMode, RunsDir
from lab.cli.param_types import one_of, whole
from lab.console import notify, print_json
from lab.errors import InputError, InterruptError, LabError
from lab.reproduce.claims import ALL, GROUPS, NAMES, Source, load
from lab.run.store import RunDir, find_run, runs_dir
from lab.run.tables import show
from lab.service.batches import run_batches
from lab.service.planning import Project
from lab.service.reproduce import ReproduceOptions, plan_reproduction
from lab.task.protocol.experiments import MAX_SEED
from lab.task.text import visible

if TYPE_CHECKING:
    from lab.service.evaluation import Evaluation

_DESCRIPTION: Final = "clusters/book.yaml"
_MOST: Final = 100
_REPEATS: Final = 3


def _runs(raw: str) -> tuple[str, ...]:
    """Names of runs, separated by commas or blanks."""
    found = tuple(raw.replace(",", " ").split())
    if not found:
        raise ValueError("runs, such as last or 20261122-1533,20261122-1534")
    return found


def command(  # longer than 60 lines: the parameters are the command line
    *,
    name: Annotated[
        str, Argument(f"what is reproduced: {', '.join(NAMES)} or all", one_of(*NAMES, ALL))
    ],
    repeats: Annotated[
        int | None,
        Flag(
            f"runs of each kind, each with a seed of its own (default: {_REPEATS})",
            whole(1, _MOST),
            shows="N",
        ),
    ] = None,
    quick: Annotated[
        bool, Switch("for a class: the quick listings, and a shorter training of the blog")
    ] = False,
    seed: Annotated[
        int | None,
        Flag(
            "seed of the first repeat; each further one adds 1 (default: 1)",
            whole(0, MAX_SEED),
            shows="N",
        ),
    ] = None,
    runs: Annotated[
        tuple[str, ...] | None,
        Flag("judge these runs, and make none: ids or directories", _runs, shows="RUN,RUN"),
    ] = None,
    backend: BackendName = AUTO,
    cluster: Annotated[
        str | None, Flag(f"the cluster description (default: {_DESCRIPTION})", shows="FILE")
    ] = None,
    gpus: GpuMode = AUTO,
    json: Annotated[bool, Switch("print all verdicts as JSON on stdout")] = False,
    runs_dir_: RunsDir = None,
) -> None:
    """Train what a source tells of, and judge each of its claims."""
    store = runs_dir(runs_dir_)
    sources = [load(each) for each in (NAMES if name == ALL else (name,))]
    if runs is not None:
        for flag, given in (("--repeats", repeats), ("--quick", quick or None), ("--seed", seed)):
            if given is not None:
                raise InputError(f"{flag} is for runs to be made", "leave it out, or --runs")
        found = [_find(each, store) for each in runs]
        several = list({run.path.resolve(): run for run in found}.values())  # each counts once
        _finish(
            [_evaluate(each, several, store, strict=name != ALL) for each in sources], json=json
        )
        return
    options = ReproduceOptions(
        backend, gpus, repeats or _REPEATS, 1 if seed is None else seed, quick
    )
    project = Project.load(cluster or _DESCRIPTION)
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
            total = sum(len(batch.points) for batch in batches)
            raise InterruptError(
                f"interrupted in run {len(outcome.begun)} of {total} for {source.name}",
                "those that were made are at home, see `lab runs`",
            )
        raise outcome.stopped
    _finish(evaluations, json=json)


def _find(name: str, runs_dir: Path) -> RunDir:
    """A run by its directory, or by its id in the local run store.

    Raises:
        InputError: There is no such run, or it has not ended.
    """
    path = Path(name)
    run = RunDir(path) if (path / "run.json").is_file() else find_run(name, runs_dir)
    if not run.read().state.ended:
        raise InputError(
            f"run {run.run_id} has not ended, or not all of it is at home",
            f"follow it with `lab attach {run.run_id}`, or bring it home with `lab collect`",
        )
    return run


def _evaluate(
    source: Source, runs: Sequence[RunDir], runs_dir: Path, *, strict: bool = True
) -> Evaluation:
    """Evaluate runs and save the result; what cannot be saved is at least shown."""
    # SciPy costs a second: it is imported after the runs.
    from lab.service.evaluation import evaluate  # noqa: PLC0415

    found = evaluate(source, runs, strict=strict)
    try:
        notify(f"{source.name}: {found.save(runs_dir)}")
    except LabError:
        _show([found], json=False)
        raise
    return found


def _show(evaluations: Sequence[Evaluation], *, json: bool) -> None:
    """Print the verdicts: a table for each source, or all as JSON."""
    from lab.reproduce import view  # noqa: PLC0415

    if json:
        results = [each.result for each in evaluations]
        print_json(results[0] if len(results) == 1 else results)
        return
    for each in evaluations:
        print(f"{each.result['name']}: {each.result['source']}\n")
        groups = view.grouped(each.verdicts)
        for group, members in groups.items():
            print(f"{GROUPS[group].capitalize()}\n")
            for line in view.notes(members):
                show(Text(visible(line)))
            show(view.verdicts_table(members))
            print()
        for line in view.reasons(each.verdicts):
            show(Text(visible(line)))
        runs = len(each.result["runs"])
        print(f"{runs} {'run' if runs == 1 else 'runs'}")
        for group, members in groups.items():
            print(f"  {GROUPS[group]}: {view.counts(members)}")


def _finish(evaluations: Sequence[Evaluation], *, json: bool) -> None:
    """Print the verdicts, and end as the worst of them says."""
    from lab.service.evaluation import check_reproduced  # noqa: PLC0415

    _show(evaluations, json=json)
    check_reproduced(evaluations)
