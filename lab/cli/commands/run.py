r"""`lab run EXPERIMENT`.

PROGRAM may be one for each task, in one directory: worker-0=a.py,worker-1=b.py

Examples:
    # three asynchronous workers
    lab run async --epochs 2
    # without containers
    lab run sync --cluster clusters/book.yaml --backend local --epochs 1
    # restart a worker that fails
    lab run async --on-failure restart --fault "kill worker-1 after 500 steps"
    # an unchanged program with its job and index as its arguments
    lab run my_program.py -- {job} {index}
    # a program whose lines `lab` does not know: `it 10, err 0.5`
    lab run mine.py --record 'it (?P<step>\d+), err (?P<loss>\S+)'
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

from lab.api.results import Run
from lab.api.training import run
from lab.backends.names import AUTO
from lab.cli.run_view import print_summary, view_for_stderr
from lab.console import command_name
from lab.errors import InterruptError, LabError
from lab.log import LOG
from lab.options import Switch, presents
from lab.run.outcome import check_succeeded
from lab.run.runner import RunInterruptedError
from lab.store.directory import RunDir
from lab.store.summarize import summarize
from lab.store.summary import Summary
from lab.volume.continuation import has_checkpoint
from lab.volume.states import State


@presents(run)
def command(
    train: partial[Run],
    *,
    detach: Annotated[
        bool, Switch("return when the run has started (see `lab attach`)", short="-d")
    ] = False,
    json: Annotated[bool, Switch("print the summary as JSON")] = False,
) -> None:
    """Train an experiment, collect it, and print its results."""
    hint = partial(_hint, None if json else train.keywords)
    try:
        done = train(view=view_for_stderr, detach=detach, check=False)
    except RunInterruptedError as interrupt:
        stopped, summary = interrupt.run, summarize(interrupt.run)
        print_summary(summary, json=json)
        hint(stopped, summary, as_expected=False)
        raise InterruptError(
            f"run {stopped.run_id} was interrupted",
            f"show its results with `lab show {stopped.run_id}`",
        ) from None
    made, summary = done.directory, done.summary
    if detach:
        LOG.info(f"run {made.run_id} continues; follow it with `lab attach {made.run_id}`")
        print(summary.to_json() if json else made.run_id)
        return
    print_summary(summary, json=json)
    try:
        check_succeeded(made, summary)
    except LabError:
        hint(made, summary, as_expected=False)
        raise
    hint(made, summary, as_expected=True)


def _hint(
    given: dict[str, Any] | None, made: RunDir, summary: Summary, *, as_expected: bool
) -> None:
    """Print the command that a person may want next; a program wants none."""
    if given is None or not sys.stderr.isatty():
        return
    store = ["--runs-dir", given["runs_dir"]] if "runs_dir" in given else []
    config = ["--cluster", given["cluster"]] if "cluster" in given else []
    if given.get("backend", AUTO) != AUTO:
        config += ["--backend", given["backend"]]
        config += [f"-o={each}" for each in given.get("option", ())]
    with suppress(LabError, OSError):  # the run itself has ended well
        line = next_command(made, summary, as_expected=as_expected, store=store, config=config)
        if line:
            LOG.info(f"next: {line}")


def next_command(
    run: RunDir,
    summary: Summary,
    *,
    as_expected: bool = True,
    store: Sequence[str] = (),
    config: Sequence[str] = (),
) -> str:
    """Return the next command, or two of them joined by "or"; "" if an error says what to do.

    Args:
        run: The run that has ended.
        summary: Its summary.
        as_expected: Whether it succeeded with the expected results.
        store: The flags of this command that name the run store.
        config: The flags of this command that name the config and the backend.

    Raises:
        OSError: The run store cannot be read.
    """
    if summary.state == State.CANCELLED and _is_resumable(run):
        return _line("run", summary.experiment, *config, *store, "--resume", run.run_id)
    if not as_expected:
        return ""
    if summary.global_step is None:  # without steps, a report has no curves
        return _line("logs", "last", *store)
    report = _line("report", "last", *store)
    if _follows_a_run_of(run, summary.experiment):
        return f"{report}, or {_line('compare', 'last~1', 'last', *store)}"
    return report


def _line(*words: str) -> str:
    return f"{command_name()} {shlex.join(words)}".replace("'last~1'", "last~1")


def _is_resumable(run: RunDir) -> bool:
    return not run.read().spec.own and has_checkpoint(run.checkpoints)


def _follows_a_run_of(run: RunDir, experiment: str) -> bool:
    """Whether the run before this one is of this experiment, so that a comparison makes sense."""
    from lab.store.names import started  # noqa: PLC0415  (only for a hint)

    pair = list(started(run.path.parent).values())[-2:]
    return len(pair) > 1 and pair[1].run_id == run.run_id and pair[0].spec.experiment == experiment
