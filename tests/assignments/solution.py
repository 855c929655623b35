"""Solutions of assignments: what fills the gaps of a program, and wrong ways to fill them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.commands import ROOT

COURSE: Final = ROOT / "docs/how-to/course"
"""The files that a student gets."""

_GAP: Final = re.compile(
    r"(?P<indent> *)# --- your code: .*?"
    r"NotImplementedError\(\"`(?P<name>\w+)` in .*?# --- end ---\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Wrong:
    """A mistake in a solution.

    Attributes:
        name: What is wrong.
        old: A text of the filled program, which occurs once.
        new: What a student could write instead.
        hint: A part of the hint of the test that fails.
    """

    name: str
    old: str
    new: str
    hint: str


@dataclass(frozen=True)
class Solution:
    """The solution of one assignment.

    Attributes:
        name: The name of the lesson.
        gaps: The code of each gap, by the name in its NotImplementedError.
        wrong: Mistakes, each with a hint of its own.
    """

    name: str
    gaps: Mapping[str, str]
    wrong: Sequence[Wrong]

    @property
    def program(self) -> Path:
        """The program with gaps."""
        return COURSE / "course" / f"{self.name.replace('-', '_')}.py"

    @property
    def tests(self) -> Path:
        """Its tests."""
        return self.program.with_name(f"{self.program.stem}_tests.py")

    def filled(self) -> str:
        """The program without gaps."""
        source = self.program.read_text("utf-8")
        assert [gap["name"] for gap in _GAP.finditer(source)] == list(self.gaps)
        return _GAP.sub(
            lambda gap: textwrap.indent(self.gaps[gap["name"]].lstrip("\n"), gap["indent"]), source
        )

    def with_mistake(self, wrong: Wrong) -> str:
        """The program, filled with one mistake."""
        filled = self.filled()
        assert filled.count(wrong.old) == 1, wrong.name
        return filled.replace(wrong.old, wrong.new)
