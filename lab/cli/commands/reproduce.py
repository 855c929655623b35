"""`lab reproduce NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from lab.backends.choose import AUTO
from lab.cli.arguments import Flag, Switch, Word
from lab.cli.options import BackendName, GpuMode, RunsDir
from lab.cli.output import print_json, say
from lab.cli.reproducing import Asked
from lab.cli.values import one_of, whole
from lab.config import load_cluster
from lab.errors import InputError, InterruptError, LabError, UnjudgedError
from lab.reproduce.claims import ALL, GROUPS, NAMES, Source, load
from lab.run import project
from lab.run.cells import show
from lab.run.directory import RunDir, find_run, runs_dir
from lab.strict_json import dump
from lab.sweep.made import Made
from lab.sweep.making import make
from lab.sweep.progress import counting
from lab.task.files import write_atomically
from lab.task.parameters import MAX_SEED
from lab.task.text import short, visible

if TYPE_CHECKING:
    from lab.reproduce.judge import Verdict

_DESCRIPTION: Final = "clusters/book.yaml"
_MOST: Final = 100
_REPEATS: Final = 3


def _runs(raw: str) -> tuple[str, ...]:
    """Names of runs, separated by commas or blanks."""
    found = tuple(raw.replace(",", " ").split())
    if not found:
        raise ValueError("runs, such as last or 20261122-1533,20261122-1534")
    return found


def command(
    *,
    name: Annotated[
        str, Word(f"what is reproduced: {', '.join(NAMES)} or all", one_of(*NAMES, ALL))
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
    home = runs_dir(runs_dir_)
    sources = [load(each) for each in (NAMES if name == ALL else (name,))]
    if runs is not None:
        for flag, given in (("--repeats", repeats), ("--quick", quick or None), ("--seed", seed)):
            if given is not None:
                raise InputError(f"{flag} is for runs to be made", "leave it out, or --runs")
        found = [_find(word, home) for word in runs]
        several = list({run.path.resolve(): run for run in found}.values())  # each counts once
        for run in several:
            _check_ended(run)
        judged = [_judged(source, several, home, strict=name != ALL) for source in sources]
        _finish(judged, json=json)
        return
    path = project.cluster_path(cluster or _DESCRIPTION)
    root = project.find_root(path)
    asked = Asked(
        load_cluster(path),
        path,
        root,
        backend,
        gpus,
        repeats or _REPEATS,
        1 if seed is None else seed,
        quick,
    )
    judged = []
    for source in sources:
        begun, stopped = _make(source, asked, home)
        begun = [run for run in begun if run.path.is_dir()]  # others did not start
        if begun:
            judged.append(_judged(source, begun, home))
        if stopped is not None:
            _show(judged, json=json)
            raise stopped
    _finish(judged, json=json)


def _make(
    source: Source, asked: Asked, home: Path
) -> tuple[list[RunDir], LabError | OSError | None]:
    """Make a source's runs: all that were begun, and what has broken off the last of them."""
    shares = asked.shares(source, home)
    runs = sum(len(share.points) for share in shares)
    begun: list[RunDir] = []
    made: list[Made] = []
    with counting(runs, say) as counter:
        try:
            for share in shares:
                make(share, home, counter, made, begun)
        except KeyboardInterrupt:
            return begun, InterruptError(
                f"interrupted in run {len(begun)} of {runs} for {source.name}",
                "those that were made are at home, see `lab runs`",
            )
        except (LabError, OSError) as error:
            return begun, error
    return begun, None


def _find(word: str, home: Path) -> RunDir:
    """A run by its directory, or by its id at home."""
    path = Path(word)
    return RunDir(path) if (path / "run.json").is_file() else find_run(word, home)


def _check_ended(run: RunDir) -> None:
    """Refuse a run of which nobody knows yet how it ends."""
    if not run.read().state.ended:
        raise InputError(
            f"run {run.run_id} has not ended, or not all of it is at home",
            f"follow it with `lab attach {run.run_id}`, or bring it home with `lab collect`",
        )


def _judged(
    source: Source, found: Sequence[RunDir], home: Path, *, strict: bool = True
) -> tuple[dict[str, Any], list[Verdict]]:
    """Judge runs, and write down what was found.

    Args:
        source: The claims.
        found: The runs.
        home: Where the file is written.
        strict: Whether a run that answers to no claim is refused; else it is left out.
    """
    # SciPy costs a second: only where something is to be judged.
    from lab.reproduce.figures import read_figures  # noqa: PLC0415
    from lab.reproduce.judge import judge  # noqa: PLC0415
    from lab.reproduce.oracle import load_trainings, of_mode  # noqa: PLC0415
    from lab.reproduce.recipes import role_of_run  # noqa: PLC0415
    from lab.reproduce.view import as_json  # noqa: PLC0415

    by_role: dict[str, list[Any]] = {}
    for each in found:
        figures = read_figures(each)
        role = role_of_run(figures, source)
        if role is not None:
            by_role.setdefault(role, []).append(figures)
        elif strict:
            raise InputError(
                f"run {figures.run_id} of {short(figures.experiment)} answers to no claim of"
                f" {source.name}",
                "leave it out, or name another result",
            )
    verdicts = judge(source, by_role, of_mode(load_trainings(), source.oracle))
    ids = [figures.run_id for several in by_role.values() for figures in several]
    result = as_json(source, verdicts, ids)
    _keep(result, verdicts, source, home)
    return result, verdicts


def _keep(result: dict[str, Any], verdicts: list[Verdict], source: Source, home: Path) -> None:
    """Write down what was found; where that cannot be, it is at least shown."""
    from lab.reproduce.view import path_of  # noqa: PLC0415

    try:
        home.mkdir(parents=True, exist_ok=True)
        path = path_of(home, source)
        write_atomically(path, _text(result))
    except OSError as error:
        _show([(result, verdicts)], json=False)
        raise LabError(
            f"the verdicts on {source.name} cannot be kept in {home}: {error.strerror}",
            "name another directory with --runs-dir",
        ) from None
    say(f"{source.name}: {path}")


def _text(result: dict[str, Any]) -> str:

    return dump(result, indent=2) + "\n"


def _show(judged: Sequence[tuple[dict[str, Any], list[Verdict]]], *, json: bool) -> None:
    """Print the verdicts: a table for each source, or all as JSON."""
    from rich.text import Text  # noqa: PLC0415

    from lab.reproduce.view import (  # noqa: PLC0415
        counts,
        grouped,
        notes,
        reasons,
        verdicts_table,
    )  # fmt: skip

    if json:
        results = [result for result, _ in judged]
        print_json(results[0] if len(results) == 1 else results)
        return
    for result, verdicts in judged:
        print(f"{result['name']}: {result['source']}\n")
        groups = grouped(verdicts)
        for group, members in groups.items():
            print(f"{GROUPS[group].capitalize()}\n")
            for line in notes(members):
                show(Text(visible(line)))
            show(verdicts_table(members))
            print()
        for line in reasons(verdicts):
            show(Text(visible(line)))
        runs = len(result["runs"])
        print(f"{runs} {'run' if runs == 1 else 'runs'}")
        for group, members in groups.items():
            print(f"  {GROUPS[group]}: {counts(members)}")


def _finish(judged: Sequence[tuple[dict[str, Any], list[Verdict]]], *, json: bool) -> None:
    """Print the verdicts, and end as the worst of them says.

    Raises:
        LabError: A claim was not reproduced.
        UnjudgedError: All that could be judged were, and some could not.
    """
    _show(judged, json=json)
    every = [verdict for _, verdicts in judged for verdict in verdicts]
    off = [verdict.claim for verdict in every if verdict.verdict.exit_code == 1]
    open_ = [
        verdict.claim for verdict in every if verdict.verdict.exit_code == UnjudgedError.exit_code
    ]
    mend = "docs/reproduce.md says what each verdict means"
    if off:
        raise LabError(
            f"{len(off)} of {len(every)} claims are not reproduced, {off[0]} for one", mend
        )
    if open_:
        raise UnjudgedError(
            f"{len(open_)} of {len(every)} claims cannot be judged, {open_[0]} for one", mend
        )
