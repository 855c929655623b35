"""The answers that a student typed: `answers.jsonl` in the run store, one line for each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from lab.errors import InputError
from lab.text import short

FILE: Final = "answers.jsonl"
_MOST_BYTES: Final = 10_000_000
_Text = Annotated[str, msgspec.Meta(max_length=200)]


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer.

    Attributes:
        time_unix: When it was typed, in seconds since the epoch.
        lesson: The lesson.
        question: The question's name.
        text: The answer as it was typed.
    """

    time_unix: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    lesson: _Text
    question: _Text
    text: _Text


def add_answers(store: Path, lesson: str, given: dict[str, str]) -> None:
    """Append answers to the file of a run store.

    Raises:
        InputError: An answer is too long.
        OSError: The file cannot be written.
    """
    lines = b""
    for question, text in given.items():
        if len(text) > 200:  # noqa: PLR2004
            raise InputError(f"the answer to {question} is longer than 200 characters")
        line = Answer(time.time(), lesson, question, text)
        lines += msgspec.json.encode(line) + b"\n"
    store.mkdir(parents=True, exist_ok=True)
    with (store / FILE).open("ab") as file:
        file.write(lines)


def read_answers(path: Path) -> Sequence[Answer]:
    """Return the answers in a file, the oldest first; lines that are no answers are skipped.

    Students can write the file. It is evidence of what was typed, and of no more.
    """
    found = []
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return []
    for line in content.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=Answer))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return found


def newest(answers: Sequence[Answer], lesson: str) -> dict[str, str]:
    """Return the newest answer to each question of a lesson."""
    return {each.question: short(each.text) for each in answers if each.lesson == lesson}
