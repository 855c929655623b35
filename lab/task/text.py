"""Text from outside, made safe for a terminal."""

from __future__ import annotations

import re

# What moves a cursor, changes colours or titles, rings, hides or turns the direction of text:
# the control characters C0 (but the tab), DEL and C1, line separators, directional marks, and
# halves of surrogate pairs.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


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


def short(text: str | bytes, limit: int = 300) -> str:
    """The same, cut to at most `limit` characters: for a reason in one line."""
    line = visible(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004
