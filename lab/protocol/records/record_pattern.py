"""Numbers in printed lines, and the user's expression that makes records of them: `--record`."""

from __future__ import annotations

import math
import re
import time
from typing import Final

from lab.protocol.records import Record

GROUPS: Final = ("step", "global_step", "local_step", "epoch", "loss", "accuracy")
"""The groups that an expression may name; `step` means `global_step`."""

LONGEST: Final = 500
"""The maximum length of a line that the expression is applied to, in characters.

An expression can need time that grows with a power of this length, and Python's lock is held
meanwhile: the agent's heartbeat waits. The client tries an expression before a run.
"""

SLOW_S: Final = 1.0
"""Seconds for one line after which the expression is no longer applied."""

_WHOLE: Final = re.compile(r"\d{1,18}|\d{1,3}(?:,\d{3}){1,5}")  # fits into 64 bits
_NUMBER: Final = re.compile(
    r"[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d++)(?:\.\d*+)?|\.\d++)(?:e[-+]?\d{1,9})?|[-+]?(?:nan|inf)"
)


class PatternError(ValueError):
    """An expression cannot make records; the message says why."""


class RecordPattern:
    """Makes records of the lines that an expression matches."""

    def __init__(self, regex: str) -> None:
        """Compile an expression.

        Raises:
            PatternError: It is invalid, or does not name the groups of a record.
        """
        try:
            self._pattern = re.compile(regex)
        except (re.error, RecursionError, OverflowError) as error:
            raise PatternError(str(error)) from None
        names = self._pattern.groupindex
        if unknown := [name for name in names if name not in GROUPS]:
            raise PatternError(f"no group {unknown[0]!r} in a record")
        if not names:
            raise PatternError("it names no group")

    def read(self, line: str) -> Record | None:
        """Read a line; None if the expression matches no number in it. Epochs are as printed.

        Returns:
            A record of a step; of an epoch if it has no step, and of the end if it has only an
            accuracy.

        Raises:
            PatternError: The line took longer than `SLOW_S`.
        """
        if len(line) > LONGEST:
            return None
        began = time.monotonic()
        match = self._pattern.search(line)
        if time.monotonic() - began > SLOW_S:
            raise PatternError("takes too long for a line; its lines are no longer read")
        if match is None:
            return None
        record: Record = {"kind": "step"}
        for name, text in match.groupdict().items():
            value = None if text is None else _value(name, text)
            if value is not None:
                record["global_step" if name == "step" else name] = value
        if record.keys() <= {"kind", "accuracy"}:
            record["kind"] = "final"
        elif "epoch" in record and not record.keys() & {"global_step", "local_step"}:
            record["kind"] = "epoch"
        return record if len(record) > 1 else None


def _value(name: str, text: str) -> int | float | None:
    """Return the value of a group, which may include punctuation beside the number."""
    text = text.strip().lower()
    percent = text.endswith("%")
    text = text.strip(",;:()[]%").removesuffix(".")
    if name == "loss":
        return number(text)
    return fraction(text, percent=percent) if name == "accuracy" else whole(text)


def whole(text: str) -> int | None:
    """Return a step or an epoch, such as `1200` or `1,200`; None for other text."""
    return int(text.replace(",", "")) if _WHOLE.fullmatch(text) else None


def number(text: str) -> float | None:
    """Return a number, such as `1e-05`, `0.25` or `nan`; None for other text."""
    if not _NUMBER.fullmatch(text):
        return None
    return float(text.replace(",", ""))


def fraction(text: str, *, percent: bool = False) -> float | None:
    """Return an accuracy from 0 to 1; None for other text.

    Args:
        text: A fraction, or a percentage if it is greater than 1.
        percent: Whether a per cent sign follows it.
    """
    value = number(text)
    if value is None or math.isnan(value):
        return None
    value = value / 100 if percent or value > 1 else value
    return value if 0 <= value <= 1 else None
