"""How far a student is in each lesson, as the newest `lab check` found: `passed.json`.

It is a copy for the status of a class, which must be quick. The gradebook computes all anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from lab.volume.files import read_regular, write_atomically

if TYPE_CHECKING:
    from lab.lessons.check import StageResult

FILE: Final = "passed.json"
_MOST: Final = 99

_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Name = Annotated[str, msgspec.Meta(max_length=32)]

Passed = Annotated[dict[_Name, tuple[_Count, _Count]], msgspec.Meta(max_length=64)]
"""By lesson: the number of stages that are passed, and of all its stages."""


def read_passed(store: Path) -> Passed:
    """Return what the newest checks found; a missing or damaged file has nothing."""
    try:
        return msgspec.json.decode(read_regular(store / FILE), type=Passed)
    except (OSError, ValueError, RecursionError):
        return {}


def note_passed(store: Path, results: Mapping[str, Sequence[StageResult]]) -> None:
    """Write down what a check found of some lessons, if there is a run store.

    Raises:
        OSError: The file cannot be written.
    """
    if not store.is_dir():
        return
    now = {name: (sum(each.passed for each in of), len(of)) for name, of in results.items()}
    write_atomically(store / FILE, msgspec.json.encode({**read_passed(store), **now}).decode())
