"""The state of a run, from the states of its tasks; whether it succeeded, and if not, why.

The first functions are pure. `check_succeeded` reports failed tasks, tasks that never talked, and
printed lines that give no record.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from rich.text import Text

from lab.base.errors import LabError
from lab.base.formatting import between, counted, number
from lab.base.log import LOG
from lab.base.tables import width_of
from lab.base.text import MAX_LINE_BYTES, last_state, printed, short
from lab.protocol.volume import TaskStatus
from lab.protocol.volume.run_spec import module_files
from lab.protocol.volume.states import NEVER_TALKED, Cause, State, never_talked, outcome, run_state
from lab.runner.program_output import own_lines
from lab.runner.store.directory import RunDir, read_statuses
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import Summary

GONE: Final = "its environment no longer runs"
"""The reason of a run that is lost."""

LOG_LINES: Final = 15
"""The number of last lines of a failed task's log that are shown."""

_TAIL_BYTES: Final = LOG_LINES * 2 * MAX_LINE_BYTES
"""The number of bytes at a log's end that are searched for them; an agent splits longer lines."""

# `re` compiles these expressions at their first use: few runs need them.
_STARTS_RANKS: Final = r"\bmp\.spawn\(|multiprocessing\.spawn\b|start_processes\("
_SETS_CLUSTER: Final = r"environ(?:\[|\.setdefault\()[\"']TF_CONFIG[\"'](?:\] *=|,)"
_PLACE_FLAG: Final = (
    r"[\"'](--(?:world[-_]size|num[-_]processes|nnodes|(?:local|node)[-_]rank|rank|process[-_]id"
    r"|coordinator[-_a-z]*|master[-_]addr|init[-_]method|dist[-_](?:url|backend)))[\"']"
)

_FORMS_CLUSTER: Final = {
    "torch": (r"init_process_group|init_device_mesh", "never calls init_process_group"),
    "jax": (r"distributed\.initialize", "never calls jax.distributed.initialize"),
    "tensorflow": (r"ClusterSpec|Strategy|TF_CONFIG|RunConfig|hvd", "builds no cluster"),
}
"""Framework to how its programs find their other tasks, and what to say without it."""

_SEARCHED_BYTES: Final = 1 << 20
"""The number of bytes at a log's beginning that are searched for an example."""

_ENOUGH: Final = 2
"""The number of such lines from which on a program seems to report its training."""

_EXAMPLE: Final = 120
"""The maximum length of the example, in characters."""

_GROUPS: Final = {
    "global_step": "global_step", "local_step": "local_step", "step": "step", "iter": "step",
    "iteration": "step", "batch": "step", "round": "step", "epoch": "epoch", "loss": "loss",
    "cost": "loss", "err": "loss", "error": "loss", "entropy": "loss", "acc": "accuracy",
    "accuracy": "accuracy",
}  # fmt: skip
"""The end of a term to the group for the number after it."""

_PAIR: Final = (
    rf"(?ai)(?P<before>(?<![\w.%-])(?:[\w-]{{0,20}}[_-])?(?P<key>{'|'.join(_GROUPS)})(?: is)?"
    r"[\s:=#(\[\"'|>@]{1,6})(?P<number>[-+]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?)(?![\w.]*\w)"
)
_NO_EXAMPLE: Final = (
    r"(?i)\W*\d+/\d+ |epoch \d+/\d+$|\s*File \"|lab kind=|\[[IWEF]\d{4} |"
    r"[\w.]*(?:Error|Exception|Warning):"
)


def verdict(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> tuple[State, str]:
    """Return the run's state and its reason, from the states of its tasks; a pure function.

    The worst final state of a task is the run's state. The first task to `blame` gives the reason;
    the tasks that have ended for the same reason are counted.
    """
    names = [name for name in info.task_names() if name in statuses]
    if not all_ended(info, statuses):
        return state_under_way(info, statuses), info.reason
    state, failed = outcome(info.spec, {name: statuses[name] for name in names})
    if not failed:
        return state, NEVER_TALKED if state is State.FAILED else ""
    first = statuses[failed[0]]
    if state is State.CANCELLED:
        return state, first.reason
    same = [task for task in failed if explain(statuses[task]) == explain(first)]
    others = f" and {counted(len(same) - 1, 'other')}" if len(same) > 1 else ""
    return state, f"{first.task}{others} {explain(first)}"


def explain(status: TaskStatus) -> str:
    """Return a task's state and reason as text: `failed: exit code 1`."""
    reason = status.reason
    if status.state is State.CANCELLED and status.cause is Cause.PEER_LOST:
        reason = reason.partition(": ")[0]  # the other task has the whole reason
    state = "restarting" if status.state is State.STARTING and reason else status.state.value
    return f"{state}: {reason}" if reason else state


def all_ended(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> bool:
    """Whether every task has ended; a run without tasks has not."""
    tasks = info.task_names()
    return bool(tasks) and all(task in statuses and statuses[task].state.ended for task in tasks)


def state_under_way(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> State:
    """Return the state of a run that has not ended; a submitted run is at least starting."""
    states = [statuses[task].state for task in info.task_names() if task in statuses]
    missing = len(info.task_names()) - len(states)
    state = run_state([*states, *[State.PENDING] * missing])
    submitted = state is State.PENDING and info.submitted_unix is not None
    return State.STARTING if submitted else state


def check_succeeded(run: RunDir, summary: Summary) -> None:
    """Check that a run succeeded; if not, report why its tasks failed.

    A notice says if a user's program gave no record of a step.

    Raises:
        LabError: The run failed, its results are unexpected, or files were not collected.
    """
    info = run.read()
    statuses = read_statuses(run, info, skip_damaged=True)
    _report_unread(run, info, summary)
    blamed = _report_failed(run, statuses, summary.reason.partition(" ")[0])
    if summary.state == State.SUCCEEDED:
        if notice := _contact_notice(info, statuses):
            LOG.warning(notice)
        _check_results(run, summary)
        _check_collected(summary)
        return
    fix, reason = f"see its logs and records in {run.path}", summary.reason
    if reason == NEVER_TALKED:
        fix = _advice(run, info)
    if blamed:
        fix = blamed.fix or f"see the whole log in {run.log(blamed.task)}"
        reason = reason.removesuffix(f"; {blamed.fix}")
    reason = f" ({reason})" if reason else ""
    raise LabError(f"run {run.run_id} {summary.state}{reason}", fix)


def _report_failed(
    run: RunDir, statuses: Mapping[str, TaskStatus], named: str
) -> TaskStatus | None:
    """Report once why tasks have failed, except for the reason of the run, which the error gives.

    A task that only lost another one is left out. If a program gives no message, the last lines of
    the first log that has some are reported.

    Args:
        run: The run.
        statuses: The status of each task.
        named: The task that the reason of the run names.

    Returns:
        The status of that task, if it has failed.
    """
    groups: dict[str, list[TaskStatus]] = {}
    for status in statuses.values():
        is_consequence = status.cause is Cause.PEER_LOST and status.task != named
        if status.state in {State.FAILED, State.LOST} and not is_consequence:
            groups.setdefault(explain(status), []).append(status)
    for reason, (first, *others) in groups.items():
        if named not in {first.task, *(status.task for status in others)}:
            count = f" and {counted(len(others), 'other')}" if others else ""
            LOG.warning(f"{first.task}{count} {reason}")
        if not _has_message(first):
            any(_report_log(status.task, run.log(status.task)) for status in (first, *others))
    return statuses.get(named)


def _has_message(status: TaskStatus) -> bool:
    """Whether the reason is a message of the program, and not only its exit code."""
    ended_itself = status.cause in {Cause.EXIT_CODE, Cause.PEER_LOST}
    return ended_itself and re.match(r"(?:exit code \d+)?(?:;|$)", status.reason) is None


def _check_collected(summary: Summary) -> None:
    """Check that no file of the run was left on its run volume.

    Raises:
        LabError: A file was left there.
    """
    kept = [file for file in summary.left if file.kept]
    if kept:
        raise LabError(
            f"run {summary.run_id}: files that were not collected: {len(kept)}, the first is"
            f" {kept[0].path}: {kept[0].reason}",
            f"collect files of any size with `lab attach {summary.run_id} --all-sizes`",
        )


def _check_results(run: RunDir, summary: Summary) -> None:
    """Check that the experiment's results are as expected."""
    wrong = next((result for result in summary.results if not result.as_expected), None)
    if wrong is None:
        return
    problem = (
        "was not found"
        if wrong.value is None
        else f"is {number(wrong.value)}, not {between(wrong.low, wrong.high)}"
    )
    raise LabError(
        f"run {run.run_id} succeeded, but {wrong.name} {problem}",
        f"see its logs and records in {run.path}",
    )


def _report_log(task: str, path: Path) -> bool:
    """Report the last lines of a program in a task's log, each on one line of the terminal.

    Only the end of the log is read.

    Returns:
        Whether the log has a line.
    """
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = max(0, file.seek(0, 2) - _TAIL_BYTES)
        file.seek(start)
        lines = file.read().split(b"\n")
    lines = lines[1:] if start else lines  # the first line is cut
    last = [line for line in own_lines(lines) if line][-LOG_LINES:]
    for line in last:
        text = Text(f"{task}  | {printed(line)}".expandtabs())
        text.truncate(width_of(sys.stderr), overflow="ellipsis")
        LOG.warning(text.plain)
    return bool(last)


def report_unread(run: RunDir, summary: Summary) -> None:
    """Report that a user's program gave no record of a step: its lines, or that it made none."""
    _report_unread(run, run.read(), summary)


def _report_unread(run: RunDir, info: RunInfo, summary: Summary) -> None:
    has_record = any(
        known is not None
        for task in summary.tasks
        for known in (task.local_step, task.global_step, task.epoch, task.loss_records)
    )
    if has_record or not info.spec.own:
        return
    is_early = info.spec.has_ranks and summary.state == State.SUCCEEDED
    early = f"{Path(info.spec.program).name} ended before its first step" if is_early else ""
    if notice := _unread_notice(run, info) or early:
        LOG.warning(notice)


def _advice(run: RunDir, info: RunInfo) -> str:
    """Return what to change in the program of a run whose tasks never talked to each other."""
    source = "\n".join(_sources(run, info))
    expression, lack = _FORMS_CLUSTER[info.spec.framework]
    flags = dict.fromkeys(re.findall(_PLACE_FLAG, source))
    unset = [flag for flag in flags if not any(flag in text for text in info.spec.args)]
    if re.search(_STARTS_RANKS, source):
        advice = "it starts its ranks itself: run it on one task, as in clusters/single.yaml"
    elif re.search(_SETS_CLUSTER, source):
        advice = "it sets its own TF_CONFIG: remove it, because lab sets one"
    elif unset:
        advice = f"give it {' and '.join(unset[:2])} after --, with placeholders such as {{rank}}"
    elif info.spec.own and not re.search(expression, source):
        advice = f"it {lack}: run it on one task, as in clusters/single.yaml"
    else:
        advice = f"see what its tasks wait for in {run.path}"
    return f"{advice}; if each task may train alone, add `needs: nothing` to the config"


def _sources(run: RunDir, info: RunInfo) -> Iterator[str]:
    spec = info.spec
    for program in {*spec.programs.values()} or {spec.program}:
        for name in module_files(program) if spec.module else (program,):
            path = (run.program / name).resolve()
            if path.is_relative_to(run.program.resolve()) and path.is_file():
                yield path.read_text("utf-8", "replace")


def _contact_notice(info: RunInfo, statuses: Mapping[str, TaskStatus]) -> str:
    """Return the notice about tasks of a successful run that never talked to another one, or ""."""
    if never_talked(info.spec, statuses):
        return f"warning: {NEVER_TALKED}"
    trained = [status for status in statuses.values() if status.global_step is not None]
    silent = [status.task for status in trained if status.talked is False]
    if not info.spec.must_talk or not any(status.talked for status in statuses.values()):
        return ""
    names = ", ".join(silent)
    return f"warning: {names} never exchanged data with another task" if silent else ""


def _unread_notice(run: RunDir, info: RunInfo) -> str:
    """Return the notice about a user's program that has recorded no step.

    Returns:
        One line with an example, and an expression for `--record`; "" if hardly a printed line has
        a number beside a term such as `loss`.
    """
    for task in info.task_names():
        program = None if info.spec.is_service(task) else info.spec.program_of(task)
        examples = list(_unread(info, _lines(run.log(task)))) if program is not None else []
        if program is not None and len(examples) >= _ENOUGH:
            example = max(examples, key=lambda line: len(_pairs(line)))
            name = Path(program).name
            return (
                f"no step was read from {name}'s lines, such as"
                f' "{short(example.strip(), _EXAMPLE)}"; use'
                f" --record {shlex.quote(_expression(example))}"
            )
    return ""


def _lines(path: Path) -> list[bytes]:
    if not path.is_file():
        return []
    with path.open("rb") as file:
        return file.read(_SEARCHED_BYTES).split(b"\n")


def _unread(info: RunInfo, lines: list[bytes]) -> Iterator[str]:
    """The lines with a number of the training that give no record."""
    # Imported here, as below: most runs need none of it.
    from lab.protocol.records.log_parsers import LogParser  # noqa: PLC0415
    from lab.protocol.records.record_pattern import LONGEST  # noqa: PLC0415

    parser = LogParser(info.spec.record)
    for line in own_lines(lines):
        if parser.read(line) is None and len(line) <= LONGEST:
            text = last_state(line.decode(errors="replace"))
            if not re.match(_NO_EXAMPLE, text) and _pairs(text):
                yield text


def _pairs(line: str) -> list[re.Match[str]]:
    """The terms with a number in a line; the first one for each group."""
    pairs: dict[str, re.Match[str]] = {}
    for pair in re.finditer(_PAIR, line):
        pairs.setdefault(_GROUPS[pair["key"].lower()], pair)
    return list(pairs.values())


def _expression(line: str) -> str:
    """An expression for `--record` that reads this line."""
    from lab.protocol.records.record_pattern import PatternError, RecordPattern  # noqa: PLC0415

    parts = []
    for pair in _pairs(line):
        group = _GROUPS[pair["key"].lower()]
        number = r"[\d,]+" if "," in pair["number"] else r"\d+"
        number = r"\S+" if group in {"loss", "accuracy"} else number
        before = re.sub(r"(?:\\\s){2,}", r"\\s+", re.escape(pair["before"])).replace(r"\ ", " ")
        parts.append(f"{before}(?P<{group}>{number})")
    expression = ".*".join(parts)
    try:
        reads = RecordPattern(expression).read(line.strip()) is not None
    except PatternError:
        reads = False
    return expression if reads else r"step (?P<step>\d+).* loss (?P<loss>\S+)"
