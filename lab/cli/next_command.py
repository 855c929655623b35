"""The command that a user most likely needs after a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from lab.command_name import command_name
from lab.store.directory import RunDir
from lab.store.names import started
from lab.store.summary import Summary
from lab.volume.continuation import has_checkpoint
from lab.volume.states import State


def next_command(
    run: RunDir,
    summary: Summary,
    *,
    as_expected: bool = True,
    store: Sequence[str] = (),
    config: Sequence[str] = (),
) -> str:
    """Return the next command, or two of them joined by "or".

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
        failed = [each.task for each in summary.tasks if each.state in {State.FAILED, State.LOST}]
        return _line("logs", run.run_id, *store, *(["--task", failed[0]] if failed else []))
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
    pair = list(started(run.path.parent).values())[-2:]
    return len(pair) > 1 and pair[1].run_id == run.run_id and pair[0].spec.experiment == experiment
