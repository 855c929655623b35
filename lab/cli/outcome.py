"""What a command says of a run that it has followed to its end."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from typing import Final

from rich.text import Text

from lab.cli.output import say
from lab.errors import LabError
from lab.formatting import between, number
from lab.run.cells import show, width_of
from lab.run.directory import RunDir
from lab.run.result import result
from lab.run.summary import Summary
from lab.task.output import MAX_LINE_BYTES
from lab.task.states import State
from lab.task.text import short, visible

LOG_LINES: Final = 15
"""The number of last lines of a failed task's log that are shown."""

_TAIL_BYTES: Final = LOG_LINES * 2 * MAX_LINE_BYTES
"""How much of a log's end is searched for them; an agent splits longer lines."""

_CHATTER: Final = re.compile(
    rb"[IW][0-9]{4} [0-9:.]{8,40} +[0-9]+ |WARNING: All log messages before absl::"
)
"""How lines of TensorFlow's own begin that tell of no fault; a log is full of them."""


def tell(summary: Summary, *, json: bool) -> None:
    """Print what a run came to; as JSON in the last line of stdout where that is asked for.

    Where the terminal was closed nobody is left to tell, and the run has ended as it has.
    """
    try:
        show(result(summary), to_stderr=json)
        if json:
            print(summary.to_json())
        sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        # Python would try once more when it ends, and that would change the exit code.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def judge(run: RunDir, summary: Summary) -> None:
    """See that the run succeeded; if not, show the last lines of each failed task's log.

    Raises:
        LabError: It did not succeed.
    """
    if summary.state == State.SUCCEEDED:
        _compare(run, summary)
        check_collected(summary)
        return
    for task in summary.tasks:
        if task.state in {State.FAILED, State.LOST}:
            _show_log(task.task, run.log(task.task))
    reason = f" ({summary.reason})" if summary.reason else ""
    raise LabError(
        f"run {run.run_id} {summary.state}{reason}", f"all that its tasks said is in {run.path}"
    )


def check_collected(summary: Summary) -> None:
    """See that no data of the run was left on its volume.

    Raises:
        LabError: There is such a file.
    """
    kept = [each for each in summary.left if each.kept]
    if kept:
        raise LabError(
            f"run {summary.run_id}: files that were not collected: {len(kept)}, the first one is"
            f" {short(kept[0].path)}: {short(kept[0].reason)}",
            f"`lab collect {summary.run_id} --all-sizes` collects files of any size",
        )


def _compare(run: RunDir, summary: Summary) -> None:
    """See that the experiment has found what it has to find."""
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
        f"all that its tasks said is in {run.path}",
    )


def _show_log(task: str, path: Path) -> None:
    """Print the last lines of a task's log, each on one line of the terminal, and its path."""
    width = width_of(sys.stderr)
    lines = _last_lines(path)
    for line in lines:
        text = Text(f"{task}  | {visible(line)}".expandtabs())
        text.truncate(width, overflow="ellipsis")
        say(text.plain)
    if lines:
        say(f"{task}  | the whole log: {path}")


def _last_lines(path: Path) -> list[bytes]:
    """The last lines of a log, without TensorFlow's chatter, however long the log is."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        start = max(0, file.seek(0, 2) - _TAIL_BYTES)
        file.seek(start)
        lines = file.read().split(b"\n")
    lines = lines[1:] if start else lines  # the first one is cut
    lines = lines[:-1] if lines and not lines[-1] else lines
    return [line for line in lines if not _CHATTER.match(line)][-LOG_LINES:]
