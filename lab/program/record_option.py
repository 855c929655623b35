"""`--record`: its check on the client, and the notice about lines that give no record."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from lab.errors import InputError
from lab.records.record_pattern import GROUPS, LONGEST, PatternError, RecordPattern

LIMIT_S: Final = 5.0
"""Seconds within which an expression must read all trial lines; a usual one takes milliseconds."""

_TRIAL: Final = f"""
import re, sys
pattern = re.compile(sys.argv[1])
for unit in ["a", "1", " ", "a ", "1 ", "a1 ", "=", "a=1, ", "step 1 loss 0.5 "]:
    line = unit * {LONGEST}
    for text in (line[:{LONGEST}], line[:{LONGEST - 1}] + "!", "1" + line[:{LONGEST - 2}] + "!"):
        pattern.search(text)
"""


def check_record(regex: str) -> None:
    """Check a regular expression of `--record`.

    A process of its own tries it on lines that make careless expressions slow. An expression that
    is slow only for other lines is found by the agent, which stops to use it.

    Raises:
        InputError: It is invalid, names no group or another one, or takes too long.
    """
    try:
        RecordPattern(regex)
    except PatternError as error:
        what = f"--record {regex!r}: {error}"
        fix = f"name one of {', '.join(GROUPS)}, such as (?P<step>\\d+)"
        raise InputError(what, fix if "group" in str(error) else "correct the expression") from None
    try:
        subprocess.run(
            [sys.executable, "-I", "-c", _TRIAL, regex], check=False, timeout=LIMIT_S,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InputError(
            f"--record {regex!r} takes too long for lines of {LONGEST} characters",
            r"avoid a repetition inside a repetition, such as (\w+\s*)*",
        ) from None
