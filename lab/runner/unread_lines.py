"""The lines of a user's program that give no record, and how `--record` would read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from lab.base.text import last_state, short
from lab.protocol.records.log_parsers import LogParser
from lab.protocol.records.record_pattern import LONGEST, PatternError, RecordPattern
from lab.runner.program_output import own_lines
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo

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


def unread_notice(run: RunDir, info: RunInfo) -> str:
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
    parser = LogParser(info.spec.record)
    for line in own_lines(lines):
        if parser.read(line) is None and len(line) <= LONGEST:
            text = last_state(line.decode(errors="replace"))
            if not _NO_EXAMPLE.match(text) and _pairs(text):
                yield text


def _pairs(line: str) -> list[re.Match[str]]:
    """The terms with a number in a line; the first one for each group."""
    pairs: dict[str, re.Match[str]] = {}
    for pair in _PAIR.finditer(line):
        pairs.setdefault(_GROUPS[pair["key"].lower()], pair)
    return list(pairs.values())


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
