"""The assignments of the example course: gaps, solutions and mistakes, and the hints of each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.protocol.runtimes import TORCH
from tests.assignments.ring import RING
from tests.assignments.solution import Solution, Wrong
from tests.support.commands import ROOT, Done, run_command
from tests.support.rank_programs import needs

SOLUTIONS = (RING,)
ids = {"ids": lambda value: value.name.replace(" ", "-")}
MISTAKES = [(solution, wrong) for solution in SOLUTIONS for wrong in solution.wrong]


def outcome(folder: Path, solution: Solution, source: str) -> Done:
    """Run an assignment's tests on a program, as a student does by hand."""
    needs("torch")
    for path in (solution.tests, solution.program.with_name("ranks.py")):
        shutil.copy(path, folder)
    (folder / solution.program.name).write_text(source)
    return run_command(
        [TORCH.python(ROOT), folder / solution.tests.name], cwd=folder, env={}, timeout=60
    )


def hint(done: Done) -> str:
    """The message of the only test that failed."""
    assert done.returncode == 1
    assert "failures=1" in done.stderr or "errors=1" in done.stderr
    lines = done.stderr.split("\n\n---")[0].splitlines()
    return lines[-1].partition(": ")[2]


@pytest.mark.parametrize("solution", SOLUTIONS, **ids)
def test_an_empty_program_says_which_gap_is_first(tmp_path: Path, solution: Solution) -> None:
    first = next(iter(solution.gaps))
    seen = hint(outcome(tmp_path, solution, solution.program.read_text()))
    assert seen.startswith(f"{first} of {solution.program.name} has no code yet: ")


@pytest.mark.parametrize("solution", SOLUTIONS, **ids)
def test_a_solution_passes(tmp_path: Path, solution: Solution) -> None:
    done = outcome(tmp_path, solution, solution.filled())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("solution", "wrong"), MISTAKES, **ids)
def test_a_mistake_has_its_own_hint(tmp_path: Path, solution: Solution, wrong: Wrong) -> None:
    seen = hint(outcome(tmp_path, solution, solution.with_mistake(wrong)))
    assert wrong.hint in seen
    assert [each.name for each in solution.wrong if each.hint in seen] == [wrong.name]
