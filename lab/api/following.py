"""Follow and control runs from Python: `lab attach`, `lab cancel` and `lab collect`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from lab.api.args import check_main_thread
from lab.api.results import Run
from lab.api.training import RunOutput, brief_output
from lab.backends.environment import Environment
from lab.backends.registry import backends
from lab.console import messages_shown
from lab.console import output as output_of_caller
from lab.errors import InputError
from lab.log import LOG
from lab.options import Argument, Switch
from lab.options.shared import RunsDir
from lab.project import default_name
from lab.run.discovery import locate, reachable
from lab.run.outcome import check_collected, check_succeeded
from lab.run.recovery import collect_one, collect_runs
from lab.run.removal import remove_stopped, run_all
from lab.run.runner import RunInterruptedError
from lab.run.status import StatusProber, finalize, volume_status
from lab.store.directory import LAST, RunDir, all_runs, runs_path
from lab.volume import Request

CANCELLED: Final = "cancelled by `lab cancel`"


def attach(
    run: Annotated[str, Argument()] = LAST,
    *,
    runs_dir: RunsDir = None,
    check: bool = True,
    quiet: bool = False,
    output: RunOutput | None = None,
) -> Run:
    """Follow a run whose client has stopped, and those that continue it, and collect them.

    A run on no run volume is only summarized. After Ctrl-C the run continues.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1 (default: last).
        runs_dir: The run store.
        check: Whether a run that fails, or has unexpected results, is an error.
        quiet: Print nothing but warnings.
        output: Where the run shows what happens; None: one line that changes.

    Returns:
        The last run.

    Raises:
        InputError: No run matches, or several do.
        LabError: The run cannot be followed; with `check`, also: it did not succeed.
        RunInterruptedError: The user stopped following; the run continues.
    """
    check_main_thread("attach")
    store, out = runs_path(runs_dir), output_of_caller()
    shown = output or brief_output(out, quiet=quiet)
    with messages_shown(out, quiet=quiet):
        found = locate(run, store, backends(), default_name())
        if found.request is None or found.environment is None:
            finalize(found.run, StatusProber(backends))
            done = found.run
        else:
            done = _followed(found.request, found.environment, store, shown)
        if check:
            check_succeeded(done, Run(done).summary)
    return Run(done)


def _followed(first: Request, environment: Environment, store: Path, output: RunOutput) -> RunDir:
    """Follow a run, and those that continue it; return the last one.

    Raises:
        RunInterruptedError: The user stopped following.
    """
    request: Request | None = first
    run = RunDir(store / first.run_id)
    try:
        while request is not None:
            summary = collect_one(
                request,
                environment,
                store,
                follow=True,
                view=lambda info: output.view(RunDir(store / info.run_id), info),
            )
            run = RunDir(store / summary.run_id)
            request = environment.continuation(summary.run_id)
    except KeyboardInterrupt:
        raise RunInterruptedError(run) from None
    LOG.info(f"environment {environment.project!r} is kept; remove it with `lab down`")
    return run


def cancel(run: Annotated[str, Argument()] = LAST, *, runs_dir: RunsDir = None) -> str:
    """Ask the tasks of a run to end; a client that follows the run collects it.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1 (default: last).
        runs_dir: The run store.

    Returns:
        The id of the run.

    Raises:
        InputError: No run matches or several do, it has ended, or its environment no longer runs.
    """
    found = locate(run, runs_path(runs_dir), backends(), default_name())
    run_id, environment = found.run.run_id, found.environment
    on_volume = None if environment is None else volume_status(environment, run_id)
    ended = on_volume is None or all(status.state.ended for status in on_volume.statuses.values())
    if environment is None or on_volume is None or ended:
        raise InputError(
            f"run {run_id} has already ended", f"see its result with `lab show {run_id}`"
        )
    if on_volume.stopped:
        raise InputError(
            f"run {run_id} has no task to cancel: its environment no longer runs",
            f"collect its files with `lab collect {run_id}`",
        )
    environment.cancel(run_id, CANCELLED)
    return run_id


@messages_shown()
def collect(
    run: Annotated[str | None, Argument()] = None,
    *,
    all_sizes: Annotated[bool, Switch()] = False,
    runs_dir: RunsDir = None,
    check: bool = True,
) -> Run | None:
    """Copy missing output from the run volumes of all environments to the run store.

    A stopped environment is removed when all its files are collected.

    Args:
        run: A run's id, a unique prefix of it, last, or last~1 (default: all runs).
        all_sizes: Also collect files of more than 1 GiB.
        runs_dir: The run store.
        check: Whether files that stay on the run volume are an error.

    Returns:
        The run; None if all runs were collected.

    Raises:
        InputError: No run matches, several do, or the run is on no run volume.
        LabError: A run cannot be collected; the others are collected all the same.
    """
    store, known = runs_path(runs_dir), backends()
    prober = StatusProber(lambda: known)  # one for all runs: it asks a failed backend only once
    clean = partial(remove_stopped, runs_dir=store, all_sizes=all_sizes)
    if run is not None:
        found = locate(run, store, known, default_name())
        if found.request is None or found.environment is None:
            finalize(found.run, prober)
            raise InputError(
                f"run {found.run.run_id} is on no run volume: nothing can be collected",
                f"see its collected results with `lab show {found.run.run_id}`",
            )
        summary = collect_one(found.request, found.environment, store, all_sizes=all_sizes)
        clean(found.environment)
        if check:
            check_collected(summary)
        return Run(found.run)

    def collect_every(environment: Environment) -> None:
        collect_runs(environment, store, all_sizes=all_sizes)
        clean(environment)

    def actions() -> Iterator[Callable[[], None]]:
        for environment in reachable(known, default_name()):
            yield partial(collect_every, environment)
        for each in all_runs(store):
            if not each.is_followed():
                yield partial(finalize, each, prober)

    run_all(actions())
    return None
