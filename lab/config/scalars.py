"""Plain scalars by the core schema of YAML 1.2.

PyYAML follows YAML 1.1, where `on` and `no` are booleans, `010` is 8, `1:30` is 90 and `1_000` is a
number. Here `on` is a text, `010` is 10, and the other two are texts. Source: YAML 1.2.2, 10.3.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

Scalar = str | int | float | bool | None

_WORDS: Final[dict[str, Scalar]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS: Final[tuple[tuple[re.Pattern[str], Callable[[str], Scalar]], ...]] = (
    (re.compile(r"[-+]?[0-9]+"), int),
    (re.compile(r"0o[0-7]+"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]+"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"), float),
    (
        re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        lambda text: float(text.replace(".", "")),
    ),
)
# Python refuses to convert thousands of digits; nothing here needs them.
_LONGEST_NUMBER: Final = 40


def plain(text: str) -> Scalar:
    """The value of a plain scalar.

    A number of more than 40 characters stays a text: nothing in a description is that large.
    """
    if text in _WORDS:
        return _WORDS[text]
    if len(text) <= _LONGEST_NUMBER:
        for pattern, convert in _NUMBERS:
            if pattern.fullmatch(text):
                return convert(text)
    return text
