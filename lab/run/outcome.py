"""Check whether a run succeeded; if not, report the failed tasks, or lines that gave no record."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.text import Text

from lab.errors import LabError
from lab.formatting import between, counted, number
from lab.log import LOG
from lab.records.log_parsers import LogParser
from lab.records.record_pattern import LONGEST, PatternError, RecordPattern
from lab.run.program_output import own_lines
from lab.run.state import explain
from lab.store.directory import RunDir, read_statuses
from lab.store.run_info import RunInfo
from lab.store.summary import Summary
from lab.tables import width_of
from lab.text import LONGEST_REASON, MAX_LINE_BYTES, last_state, printed, short, visible
from lab.volume import TaskStatus
from lab.volume.states import Cause, State

LOG_LINES: Final = 15
"""The number of last lines of a failed task's log that are shown."""

_TAIL_BYTES: Final = LOG_LINES * 2 * MAX_LINE_BYTES
"""The number of bytes at a log's end that are searched for them; an agent splits longer lines."""


_NO_MESSAGE: Final = re.compile(r"(?:exit code \d+(?:; its last line: .*)?)?")


def check_succeeded(run: RunDir, summary: Summary) -> None:
    """Check that a run succeeded; if not, report why its tasks failed.

    Tasks that have failed for the same reason are reported once. If the reason has no message of
    the program, the last lines of the first log that has some are reported.

    A notice says if the lines of a user's program gave no record of a step.

    Raises:
        LabError: The run failed, its results are unexpected, or files were not collected.
    """
    if notice := unread_notice(run, summary):
        LOG.warning(notice)
    if summary.state == State.SUCCEEDED:
        _check_results(run, summary)
        check_collected(summary)
        return
    fix = f"see its logs and records in {run.path}"
    groups = _failed(run)
    for group in groups:
        first, *others = group
        if len(groups) > 1:
            count = f" and {counted(len(others), 'other')}" if others else ""
            LOG.warning(f"{first.task}{count} {short(explain(first), LONGEST_REASON)}")
        if not _has_message(first):
            any(_report_log(each.task, run.log(each.task)) for each in group)
        elif (named := summary.reason.partition(" ")[0]) in {each.task for each in group}:
            fix = f"the whole log is {run.log(named)}"
    reason = f" ({summary.reason})" if summary.reason else ""
    raise LabError(f"run {run.run_id} {summary.state}{reason}", fix)


def _failed(run: RunDir) -> list[list[TaskStatus]]:
    """The statuses of the failed tasks; a list for each reason, in the cluster's order."""
    groups: dict[str, list[TaskStatus]] = {}
    for status in read_statuses(run, run.read(), skip_damaged=True).values():
        if status.state in {State.FAILED, State.LOST}:
            groups.setdefault(explain(status), []).append(status)
    return list(groups.values())


def _has_message(status: TaskStatus) -> bool:
    """Whether the reason is a message of the program, and not only its exit code."""
    ended_itself = status.cause in {Cause.EXIT_CODE, Cause.PEER_LOST}
    return ended_itself and _NO_MESSAGE.fullmatch(status.reason) is None


def check_collected(summary: Summary) -> None:
    """Check that no file of the run was left on its run volume.

    Raises:
        LabError: A file was left there.
    """
    kept = [each for each in summary.left if each.kept]
    if kept:
        raise LabError(
            f"run {summary.run_id}: files that were not collected: {len(kept)}, the first is"
            f" {short(kept[0].path)}: {short(kept[0].reason)}",
            f"collect files of any size with `lab collect {summary.run_id} --all-sizes`",
        )


def _check_results(run: RunDir, summary: Summary) -> None:
    """Check that the experiment's results are as expected."""
    wrong = next((each for each in summary.results if not each.as_expected), None)
    if wrong is None:
        return
    what = (
        "was not found"
        if wrong.value is None
        else f"is {number(wrong.value)}, not {between(wrong.low, wrong.high)}"
    )
    raise LabError(
        f"run {run.run_id} succeeded, but {visible(wrong.name)} {what}",
        f"see its logs and records in {run.path}",
    )


def _report_log(task: str, path: Path) -> bool:
    """Report the last lines of a task's log, each on one line of the terminal, and its path.

    Returns:
        Whether the log has a line.
    """
    width = width_of(sys.stderr)
    lines = _last_lines(path)
    for line in lines:
        text = Text(f"{task}  | {printed(line)}".expandtabs())
        text.truncate(width, overflow="ellipsis")
        LOG.warning(text.plain)
    if lines:
        LOG.warning(f"{task}  | the whole log: {path}")
    return bool(lines)


def _last_lines(path: Path) -> list[bytes]:
    """Return the last lines of the program in a log; read only the log's end."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        start = max(0, file.seek(0, 2) - _TAIL_BYTES)
        file.seek(start)
        lines = file.read().split(b"\n")
    lines = lines[1:] if start else lines  # the first line is cut
    lines = lines[:-1] if lines and not lines[-1] else lines
    return own_lines(lines)[-LOG_LINES:]


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

_PAIR: Final = re.compile(
    rf"(?P<before>(?<![\w.%-])(?:[\w-]{{0,20}}[_-])?(?P<key>{'|'.join(_GROUPS)})(?: is)?"
    r"[\s:=#(\[\"'|>@]{1,6})(?P<number>[-+]?(?:\d[\d,]*)?\.?\d+(?:e[-+]?\d+)?)(?![\w.]*\w)",
    re.IGNORECASE | re.ASCII,
)
_NO_EXAMPLE: Final = re.compile(
    r"\W*\d+/\d+ |epoch \d+/\d+$|\s*File \"|lab kind=|\[[IWEF]\d{4} |"
    r"[\w.]*(?:Error|Exception|Warning):",
    re.IGNORECASE,
)


def unread_notice(run: RunDir, summary: Summary) -> str:
    """Return the notice about a user's program without a record of a step.

    Returns:
        One line with an example, and an expression for `--record`; "" if a step was recorded, or
        if hardly a printed line has a number beside a term such as `loss`.
    """
    info = run.read()
    if not info.spec.own or any(
        known is not None
        for task in summary.tasks
        for known in (task.local_step, task.global_step, task.epoch, task.loss_records)
    ):
        return ""
    for task in info.task_names():
        program = None if info.spec.is_service(task) else info.spec.program_of(task)
        examples = list(_unread(info, _lines(run.log(task)))) if program is not None else []
        if program is not None and len(examples) >= _ENOUGH:
            example = max(examples, key=lambda line: len(_pairs(line)))
            name = Path(program.program).name
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
    parser = LogParser(info.spec.record)
    for line in own_lines(lines):
        if parser.read(line) is None and len(line) <= LONGEST:
            text = last_state(line.decode(errors="replace"))
            if not _NO_EXAMPLE.match(text) and _pairs(text):
                yield text


def _pairs(line: str) -> list[re.Match[str]]:
    """The terms with a number in a line; the first one for each group."""
    found: dict[str, re.Match[str]] = {}
    for pair in _PAIR.finditer(line):
        found.setdefault(_GROUPS[pair["key"].lower()], pair)
    return list(found.values())


def _expression(line: str) -> str:
    """An expression for `--record` that reads this line."""
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
