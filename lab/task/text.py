"""Text from outside, made safe for a terminal."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

LONGEST: Final = 200
"""Maximum characters of a name or text from outside in a message."""

LONGEST_REASON: Final = 500
"""Maximum characters of a reason that contains text from outside."""

LONGEST_MESSAGE: Final = 1_000
"""Maximum characters of a message."""

# What moves a cursor, changes colours or titles, rings, hides or turns the direction of text:
# the control characters C0 (but the tab), DEL and C1, line separators, directional marks, and
# halves of surrogate pairs.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
# A quoted name may contain spaces. An apostrophe inside a word begins or ends no name.
_LONG = re.compile(rf"(?<!\w)'(?P<quoted>(?=\S)[^']{{{LONGEST + 1},}})'(?!\w)|\S{{{LONGEST + 1},}}")


def visible(text: str | bytes) -> str:
    r"""Show every control character as an escape, `\x1b`, and invalid UTF-8 as U+FFFD.

    Args:
        text: One line, without its line end. To apply it twice changes nothing.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text)


def short(text: str | bytes, limit: int = LONGEST) -> str:
    """The same for a message: at most `limit` characters, with the length named if it is cut."""
    line = visible(text)
    if len(line) <= limit:
        return line
    reported = f"… ({len(line):,} characters)"
    return line[: limit - len(reported)] + reported


def clipped(text: str | bytes, width: int) -> str:
    """The same for a cell or a label: at most `width` characters."""
    line = visible(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def bounded(message: str) -> str:
    """A message in one line, in which every word and every quoted name is `short`."""
    return short(_LONG.sub(_shortened, visible(message)), LONGEST_MESSAGE)


def nearest(argument: str, known: Iterable[str]) -> str | None:
    """The known word that is most like another one; None where none is alike."""
    return next(iter(difflib.get_close_matches(argument, map(str, known), n=1)), None)


def suggestion(argument: str, known: Iterable[str]) -> str:
    """`did you mean 'async'? ` for the nearest known word, or nothing."""
    near = nearest(argument, known)
    return "" if near is None else f"did you mean {near!r}? "


def _shortened(match: re.Match[str]) -> str:
    quoted = match["quoted"]
    return short(match.group()) if quoted is None else f"'{short(quoted)}'"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004
