"""From the bytes of a file to text that is fit to be parsed."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from lab.config.diagnostics import SHOWN, Place, Problem

MAX_BYTES: Final = 1024**2

# Tab indentation, apart from lines that are blank or a comment.
_TAB = re.compile(r"^ *(\t)[ \t]*[^\s#]", re.MULTILINE)
# All that YAML does not take for printable, and three breaks that only YAML 1.1 takes for line ends
# (U+0085, U+2028, U+2029): a place behind them would be counted differently by an editor. Written
# as what is allowed, it would take ten times as long to compile, at every start.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")


def decode(data: bytes) -> tuple[str, list[Problem]]:
    """Read bytes as text.

    Args:
        data: The content, at most one byte more than `MAX_BYTES`.

    Returns:
        The text, and why it is not fit to be parsed.
    """
    if len(data) > MAX_BYTES:
        message = "the file is larger than 1 MiB; is it a cluster description?"
        return "", [Problem((), message)]
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        message = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        return "", [Problem((), message, place=_at(before, len(before)))]
    control = _CONTROL.search(text)
    if control is not None:
        message = f"a control character, U+{ord(control.group()):04X}; remove it"
        return "", [Problem((), message, place=_at(text, control.start()))]
    tabs = islice(_TAB.finditer(text), SHOWN)
    message = "a tab; YAML is indented with blanks"
    return text, [Problem((), message, place=_at(text, tab.start(1))) for tab in tabs]


def _at(text: str, index: int) -> Place:
    before = text[:index].replace("\r\n", "\n").replace("\r", "\n")
    return Place(before.count("\n") + 1, len(before) - before.rfind("\n"))
