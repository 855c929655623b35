"""Lessons in a run store: the answers that a student typed, and the stages that passed.

`answers.jsonl` has a line for each answer, for each prediction, and for what the tests of a program
said. `passed.json` has the result of the newest `lab check`, for the status of a class, which must
be quick. The gradebook computes everything again, except for the tests.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec

from lab.base.errors import InputError, LabError
from lab.base.text import LONGEST_REASON, visible
from lab.protocol.volume.files import open_regular, read_regular, write_atomically

FILE: Final = "answers.jsonl"
_PASSED: Final = "passed.json"
_MOST_BYTES: Final = 10_000_000
_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_REASON)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=99)]
_Lesson = Annotated[str, msgspec.Meta(max_length=32)]

Passed = Annotated[dict[_Lesson, tuple[_Count, _Count]], msgspec.Meta(max_length=64)]
"""By lesson: the number of stages that are passed, and of all its stages."""


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer.

    Attributes:
        time_unix: When it was typed, in seconds since the epoch.
        lesson: The lesson.
        question: The question's name; or that of `predicted`, or of `tests_of`.
        text: The answer as it was typed.
    """

    time_unix: Annotated[float, msgspec.Meta(ge=0, le=1e11)]
    lesson: _Text
    question: _Text
    text: _Text


def predicted(question: str) -> str:
    """Return the name under which the prediction of an answer is kept."""
    return f"{question} predicted"


def tests_of(stage: str) -> str:
    """Return the name under which the result of a stage's tests is kept."""
    return f"tests of {stage}"


def add_answers(store: Path, lesson: str, answers: dict[str, str]) -> None:
    """Append answers to the file of a run store.

    Raises:
        InputError: An answer is too long.
        OSError: The file cannot be written.
    """
    lines = b"\n"  # a full disk may have cut off the last line
    for question, text in answers.items():
        safe = visible(text)
        if len(safe) > LONGEST_REASON:
            raise InputError(f"the answer to {question} is longer than {LONGEST_REASON} characters")
        lines += msgspec.json.encode(Answer(time.time(), lesson, question, safe)) + b"\n"
    store.mkdir(parents=True, exist_ok=True)
    # A link or a pipe without a reader is an error, instead of being followed or waited for.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(store / FILE, flags, 0o644), "ab") as file:
        file.write(lines)


def read_answers(path: Path) -> Sequence[Answer]:
    """Return the newest answers in a file, the oldest first; skip damaged lines.

    Students can write the file, so it shows no more than what was typed.

    Raises:
        LabError: It is not a regular file.
        OSError: It cannot be read.
    """
    try:
        with open_regular(path) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_BYTES))
            content = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise LabError(f"{path}: {error}", "remove it") from error
    answers = []
    for line in content.splitlines():
        with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            answers.append(msgspec.json.decode(line, type=Answer))
    return answers


def newest(answers: Sequence[Answer], lesson: str) -> dict[str, Answer]:
    """Return the newest answer to each question of a lesson."""
    return {answer.question: answer for answer in answers if answer.lesson == lesson}


def read_passed(store: Path) -> Passed:
    """Return what the newest checks found; {} if the file is missing or damaged."""
    try:
        return msgspec.json.decode(read_regular(store / _PASSED), type=Passed)
    except (OSError, ValueError, RecursionError):
        return {}


def note_passed(store: Path, lesson: str, stages: Sequence[bool]) -> None:
    """Record which stages of a lesson passed a check, if there is a run store.

    Raises:
        OSError: The file cannot be written.
    """
    if store.is_dir():
        passed = {**read_passed(store), lesson: (sum(stages), len(stages))}
        write_atomically(store / _PASSED, msgspec.json.encode(passed).decode())
