"""Make text from outside safe for a terminal."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable
from typing import Final

LONGEST: Final = 200
"""Maximum characters of a name or text from outside in a message."""

LONGEST_REASON: Final = 500
"""Maximum characters of a reason that contains text from outside."""

LONGEST_MESSAGE: Final = 1_000
"""Maximum characters of a message."""

MAX_LINE_BYTES: Final = 20_000
"""The maximum length of a line of a program; a longer one is split."""

SPLIT_MARK: Final = "…[line split]"
"""The end of each part but the last of a line that is too long."""

# Characters that control a terminal or hide text: the control characters C0 (except the tab), DEL
# and C1, line separators, directional marks, and halves of surrogate pairs.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-?]*+[ -/]*+[@-~]")  # such as a colour
# A quoted name may contain spaces. An apostrophe between two letters is not a quote.
_WHOLE = re.compile(r"`[^`]*`|(?<!\w)'(?=\S)[^']*'(?!\w)")
_LONG = re.compile(rf"(?<!\w)'(?P<quoted>(?=\S)[^']{{{LONGEST + 1},}})'(?!\w)|\S{{{LONGEST + 1},}}")


def visible(text: str | bytes) -> str:
    r"""Replace control characters by escapes, such as `\x1b`, and invalid UTF-8 by U+FFFD.

    A second call changes nothing.

    Args:
        text: One line, without its line end.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if text.isprintable():
        return text
    return _UNSAFE.sub(_escape, text)


def last_state(line: str) -> str:
    """Return what a terminal shows of a line that its program has overwritten, without colours.

    Progress bars move to the beginning of their line (U+000D), or back by characters (U+0008). Of
    the first part of a split line, this is the last complete state.
    """
    if "\r" in line or "\b" in line:
        if line.endswith(SPLIT_MARK):
            line = line.rpartition("\r")[0] or line
        kept: list[str] = []
        for character in line.rstrip("\r\b").rpartition("\r")[2]:
            if character != "\b":
                kept.append(character)
            elif kept:
                kept.pop()
        line = "".join(kept)
    return _CONTROL_SEQUENCE.sub("", line) if "\x1b" in line else line


def printed(line: bytes) -> str:
    """Make a line of a program safe: only its last state, without its line end."""
    return visible(last_state(line.decode("utf-8", errors="replace")))


def short(text: str | bytes, limit: int = LONGEST) -> str:
    """Make a text safe and cut it to `limit` characters; a cut text ends with its full length."""
    line = visible(text)
    if len(line) <= limit:
        return line
    suffix = f"… ({len(line):,} characters)"
    return line[: limit - len(suffix)] + suffix


def clipped(text: str | bytes, width: int) -> str:
    """Make a cell or a label safe and cut it to `width` characters."""
    line = visible(text)
    return line if len(line) <= width else line[: width - 1] + "…"


def bounded(message: str) -> str:
    """Make a message safe: one line, with each long item and each quoted name `short`."""
    return short(_LONG.sub(_shortened, visible(message)), LONGEST_MESSAGE)


def wrapped(message: str, width: int, *, indent: str = "") -> list[str]:
    """Wrap a safe message at blanks, but not within a command in backquotes or a quoted name.

    A user can copy a path or a command from the terminal, because it is never divided. If it is
    longer than a line, it has its own line.

    Args:
        message: One line without control characters.
        width: The maximum length of a line, in characters.
        indent: The beginning of each line but the first.
    """
    # U+0000 stands for a blank that stays: a safe message has none.
    kept = _WHOLE.sub(lambda match: match.group().replace(" ", "\0"), message)
    lines = textwrap.wrap(
        kept,
        max(width, len(indent) + 1),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in lines] or [""]


def nearest(argument: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar; None if none is similar."""
    return next(iter(difflib.get_close_matches(argument, map(str, known), n=1)), None)


def suggestion(argument: str, known: Iterable[str]) -> str:
    """Return `did you mean 'async'? ` for the most similar known name, or ""."""
    near = nearest(argument, known)
    return "" if near is None else f"did you mean {near!r}? "


def _shortened(match: re.Match[str]) -> str:
    quoted = match["quoted"]
    return short(match.group()) if quoted is None else f"'{short(quoted)}'"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004
