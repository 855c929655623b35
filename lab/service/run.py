"""One run, from its options to its summary."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from lab.backends import Say
from lab.run.collect import View
from lab.run.conduct import conduct
from lab.run.prepare import prepare
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summary import Summary
from lab.service.preparation import PreparedRun
from lab.service.target import Target, run_in_turn


class RunInterruptedError(KeyboardInterrupt):
    """The user interrupted a run, and the run left a directory.

    Attributes:
        run: The run.
    """

    def __init__(self, run: RunDir) -> None:
        super().__init__()
        self.run = run


def execute(
    prepared: PreparedRun,
    *,
    view: Callable[[RunDir, RunInfo], AbstractContextManager[View]],
    say: Say,
    warn: Say | None = None,
) -> tuple[RunDir, Summary]:
    """Boot if nothing is up, train, collect, and remove what was booted.

    Args:
        prepared: The run.
        view: Makes the view of the run, which is entered while the run is followed.
        say: Receives progress.
        warn: Receives warnings, and the position in the queue; None: `say` does.

    Returns:
        The run, and its summary; of a detached run, the summary so far.

    Raises:
        LabError: It could not be run.
        RunInterruptedError: The user interrupted it after it had begun.
        KeyboardInterrupt: The user interrupted it before.
    """
    options = prepared.options
    find = partial(prepared.find_target, say, warn)
    first = find()
    order = prepared.order_for(first)

    def once(target: Target, begin: Say) -> tuple[RunDir, Summary]:
        run = prepare(order, prepared.runs_dir)
        begin(run.run_id)
        say(f"run {run.run_id}: {run.path}")
        for line in order.program.notes() if order.program is not None else ():
            say(line)
        try:
            summary = conduct(
                run,
                boot=lambda defer: target.boot(defer, say),
                found=target.found,
                keep=options.keep,
                detach=options.detach,
                view=partial(view, run),
                say=say,
            )
        except KeyboardInterrupt:
            if run.path.is_dir():
                raise RunInterruptedError(run) from None
            raise
        return run, summary

    return run_in_turn(first, find, once, wait=options.wait, say=warn or say)
