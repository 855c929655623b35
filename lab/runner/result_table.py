"""The table of a run that has ended, and the cell of a state.

All text from a task is sanitized, and never interpreted as markup of rich.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Group
from rich.text import Text

from lab.base.formatting import between, figure, loss, number, percent, rate, seconds, share, whole
from lab.base.tables import Cell, table_of
from lab.base.text import LONGEST_REASON, short, visible
from lab.protocol.volume.states import State
from lab.runner.store.run_info import Uncollected
from lab.runner.store.summary import NO_STEP_MET, ResultSummary, Summary, TaskSummary
from lab.runner.store.task_progress import FINAL_LOSS

STYLES: Final[Mapping[str, str]] = {
    State.PENDING: "dim",
    State.STARTING: "yellow",
    State.READY: "yellow",
    State.TRAINING: "cyan",
    State.SUCCEEDED: "green",
    State.FAILED: "bold red",
    State.LOST: "bold red",
    State.CANCELLED: "magenta",
}

LEFT_LINES: Final = 20
"""The maximum number of uncollected files that are listed."""

_RESULT: Final = (
    "task", "node", "state", ">epochs", ">local\nsteps", ">global\nstep", ">loss", ">accuracy",
    ">time",
)  # fmt: skip

_RESULT_WITH_GPU: Final = (
    "task", "node", "state", ">epoch", ">local\nsteps", ">global\nstep", ">loss", ">accu-\nracy",
    ">gpu", ">time",
)  # fmt: skip
"""The columns if GPUs were sampled; narrower headings make room for `gpu` in 80 characters."""


def state_cell(state: str, *, is_degraded: bool = False) -> Text:
    """Return a state in its colour; an unknown state has the colour of a failure."""
    style = STYLES[State(state)] if state in set(State) else "bold red"
    return Text(visible(state), style="yellow" if is_degraded else style)


def result_table(summary: Summary) -> Group:
    """Return the table of a run's tasks, and the results of the whole run."""
    with_gpu = any(task.gpu_utilisation is not None for task in summary.tasks)
    tasks = table_of(
        _RESULT_WITH_GPU if with_gpu else _RESULT,
        [_result_row(task, with_gpu=with_gpu) for task in summary.tasks],
    )
    facts = [Text.assemble(f"{name:<35}", (value, style)) for name, value, style in _facts(summary)]
    return Group(_headline(summary), tasks, *facts)


def _result_row(task: TaskSummary, *, with_gpu: bool) -> list[Cell]:
    return [
        task.task,
        task.node,
        state_cell(task.state),
        "" if task.epoch is None else str(task.epoch + 1),
        whole(task.local_step),
        whole(task.global_step),
        loss(task.loss),
        share(task.accuracy),
        *([percent(task.gpu_utilisation)] if with_gpu else []),
        seconds(task.time_s),
    ]


def _headline(summary: Summary) -> Text:
    line = Text(visible(f"run {summary.run_id}: {summary.experiment} on {summary.backend}, "))
    line.append_text(state_cell(summary.state, is_degraded=summary.degraded))
    if summary.wall_s is not None:
        line.append(f" after {seconds(summary.wall_s)}")
    if summary.reason:
        line.append(f" ({short(summary.reason, LONGEST_REASON)})")
    return line


def _facts(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield the name, value and style of each known result of the whole run."""
    if summary.accuracy is not None:
        yield "accuracy of the final parameters", share(summary.accuracy), ""
    if summary.global_step is not None:
        per_s = "" if summary.steps_per_s is None else f", {rate(summary.steps_per_s)} a second"
        yield "global step", f"{whole(summary.global_step)}{per_s}", ""
    if summary.first_step_s is not None:
        yield "first step of every worker", f"after {seconds(summary.first_step_s)}", ""
    if summary.updates_conserved is not None:
        bad = "" if summary.updates_conserved else "bold red"
        lost = f": {summary.updates_lost} never made" if summary.updates_lost else ""
        yield "every update counted", "yes" if summary.updates_conserved else f"NO{lost}", bad
    if summary.mean_staleness is not None:
        steps = sum(task.staleness_steps or 0 for task in summary.tasks)
        yield (
            "mean staleness",
            f"{figure(summary.mean_staleness, 'updates')}, of {whole(steps)} steps",
            "",
        )
    if any(task.loss_records for task in summary.tasks):
        yield "loss", FINAL_LOSS, "dim"
    yield from _diverged(summary.tasks)
    yield from _faults(summary)
    yield from _restarts(summary)
    if summary.records_lost:
        yield "records lost", f"{summary.records_lost}", "bold red"
    yield from _left(summary.left)
    for name, group in _by_name(summary.results).items():
        differ = len({result.value for result in group}) > 1
        for result in group if differ else group[:1]:
            label = f"{name}, {result.task}" if differ else name
            yield visible(label), _result_text(result), "" if result.as_expected else "bold red"


def _faults(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield the steps that each fault met; a fault that met none is a warning."""
    met: dict[str, list[str]] = {}
    for effect in summary.faults:
        steps = [f"{whole(effect.steps)} of {effect.task}"] if effect.steps else []
        met.setdefault(effect.fault, []).extend(steps)
    for fault, steps in met.items():
        line = f"steps met: {', '.join(steps)}" if steps else NO_STEP_MET
        yield "fault", visible(f"{fault}: {line}"), "" if steps else "bold yellow"


def _restarts(summary: Summary) -> Iterator[tuple[str, str, str]]:
    """Yield the facts about tasks that failed or started again."""
    if summary.missing:
        yield "without", visible(", ".join(summary.missing)), "bold yellow"
    restarted = [f"{task.task} {task.attempts - 1}x" for task in summary.tasks if task.attempts > 1]
    if restarted:
        yield "restarted", visible(", ".join(restarted)), "bold yellow"
    if summary.steps_redone:
        yield "steps repeated", f"{whole(summary.steps_redone)}", "bold yellow"
    if summary.resumed_from:
        yield "resumed from", visible(summary.resumed_from), ""


def _diverged(tasks: Iterable[TaskSummary]) -> Iterator[tuple[str, str, str]]:
    for task in tasks:
        if task.diverged_at is not None:
            line = f"{loss(task.loss)} from step {whole(task.diverged_at)}"
            yield f"loss of {visible(task.task)}", line, "bold red"


def _left(files: Sequence[Uncollected]) -> Iterator[tuple[str, str, str]]:
    """Yield a line for each file that was not collected; files with data are first."""
    ordered = sorted(files, key=lambda file: not file.kept)
    for file in ordered[:LEFT_LINES]:
        name, style = ("not collected", "bold red") if file.kept else ("left out", "")
        yield name, f"{short(file.path)}: {short(file.reason)}", style
    if len(files) > LEFT_LINES:
        yield "not collected", f"{len(files) - LEFT_LINES:,} more files, see run.json", "bold red"


def _by_name(results: Iterable[ResultSummary]) -> dict[str, list[ResultSummary]]:
    """Group the results of several tasks by name."""
    groups: dict[str, list[ResultSummary]] = {}
    for result in results:
        groups.setdefault(result.name, []).append(result)
    return groups


def _result_text(result: ResultSummary) -> str:
    if result.value is None:
        return "NOT FOUND"
    expected = between(result.low, result.high)
    if not expected:
        return number(result.value)
    return f"{number(result.value)}, {'as expected' if result.as_expected else 'NOT'} {expected}"
