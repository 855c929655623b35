"""The assignments of the example course: gaps, solutions and mistakes, and the hints of each."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from lab.protocol.runtimes import TORCH
from tests.assignments.outer_step import OUTER_STEP
from tests.assignments.ring import EXCHANGES, RING, STUCK_THREAD, with_exchange
from tests.assignments.server import SERVER
from tests.assignments.solution import COURSE, Solution, Wrong
from tests.support.commands import ROOT, Done, lab, run_command
from tests.support.experiments import LOCAL
from tests.support.rank_programs import needs

SOLUTIONS = (RING, OUTER_STEP)
ids = {"ids": lambda value: value.name.replace(" ", "-")}
MISTAKES = [(solution, wrong) for solution in SOLUTIONS for wrong in solution.wrong]

TRIES = """
import os, runpy, sys
import torch._dynamo  # all that the programs load, once; each runs in a child of this process
tests, *folders = sys.argv[1:]
for folder in folders:
    if not os.fork():
        os.chdir(folder)
        os.dup2(os.open("errors", os.O_WRONLY | os.O_CREAT), 2)
        sys.argv, sys.path[0] = [tests], folder
        try:
            runpy.run_path(tests, run_name="__main__")
        finally:
            os._exit(0)  # without the second that Python needs to end with PyTorch
    os.wait()
"""
"""Runs the tests in each directory; their output is there, in the file `errors`."""


def write(folder: Path, solution: Solution, source: str) -> Path:
    """Write an assignment's files with this program; return the path of the tests."""
    folder.mkdir(exist_ok=True)
    for path in (solution.tests, solution.program.with_name("ranks.py")):
        shutil.copy(path, folder)
    (folder / solution.program.name).write_text(source)
    return folder / solution.tests.name


def run_by_hand(folder: Path, solution: Solution, source: str) -> Done:
    needs("torch")
    return run_command(
        [TORCH.python(ROOT), write(folder, solution, source)], cwd=folder, env={}, timeout=60
    )


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What the tests print for each mistake."""
    needs("torch")
    found = {}
    for solution in SOLUTIONS:
        folder = tmp_path_factory.mktemp(solution.name)
        folders = {wrong.name: folder / str(at) for at, wrong in enumerate(solution.wrong)}
        for wrong in solution.wrong:
            write(folders[wrong.name], solution, solution.with_mistake(wrong))
        command = [TORCH.python(ROOT), "-c", TRIES, solution.tests.name, *folders.values()]
        assert run_command(command, env={}).returncode == 0
        found |= {name: (each / "errors").read_text() for name, each in folders.items()}
    return found


def hint(printed: str) -> str:
    """The message of the only test that failed."""
    assert "failures=1" in printed or "errors=1" in printed
    return printed.split("\n\n---", maxsplit=1)[0].splitlines()[-1].partition(": ")[2]


@pytest.mark.parametrize("solution", SOLUTIONS, **ids)
def test_an_empty_program_says_which_gap_is_first(tmp_path: Path, solution: Solution) -> None:
    first = next(iter(solution.gaps))
    done = run_by_hand(tmp_path, solution, solution.program.read_text())
    seen = hint(done.stderr)
    assert done.returncode == 1
    assert seen.startswith(f"`{first}` in {solution.program.name} has no code yet: ")


@pytest.mark.parametrize("solution", SOLUTIONS, **ids)
def test_a_solution_passes(tmp_path: Path, solution: Solution) -> None:
    done = run_by_hand(tmp_path, solution, solution.filled())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("solution", "wrong"), MISTAKES, **ids)
def test_a_mistake_has_its_own_hint(
    errors: Mapping[str, str], solution: Solution, wrong: Wrong
) -> None:
    seen = hint(errors[wrong.name])
    assert wrong.hint in seen
    assert [each.name for each in solution.wrong if each.hint in seen] == [wrong.name]


ANSWERS = {
    "ring": {"messages": "4", "server": "4", "images": "150", "hundred": "1.98 ± 0.005"},
    "outer-step": {"same": "11", "fewer": "50 ± 0.5"},
    "server": {},
}
"""The answers that are the same for all runs."""


@pytest.mark.parametrize("solution", (*SOLUTIONS, SERVER), **ids)
def test_the_runs_of_a_solution_pass_the_lesson(tmp_path: Path, solution: Solution) -> None:
    needs("torch")
    lab(tmp_path, "init", "--course", "--gpus", "none")
    (tmp_path / "course" / solution.program.name).write_text(solution.filled())
    lesson = msgspec.yaml.decode((COURSE / f"lessons/{solution.name}.yaml").read_bytes())
    commands = [stage["command"] for stage in lesson["stages"] if "runs" in stage]
    for command in commands:
        lab(tmp_path, *shlex.split(command)[1:], *LOCAL)
    key = json.loads(lab(tmp_path, "check", solution.name, "--key", "--json")[0])
    answers = {
        reply["question"]: reply["given"] for stage in key["stages"] for reply in stage["replies"]
    }
    assert answers | ANSWERS[solution.name] == answers
    given = [f"--answer={name}={text.partition(' ')[0]}" for name, text in answers.items()]
    checked = json.loads(lab(tmp_path, "check", solution.name, *given, "--json")[0])
    assert [stage["hint"] for stage in checked["stages"] if not stage["passed"]] == []
    assert len(checked["stages"]) == 1 + len(commands)


@pytest.mark.parametrize("way", EXCHANGES, ids=lambda way: way.replace(" ", "-"))
def test_another_right_way_passes(tmp_path: Path, way: str) -> None:
    done = run_by_hand(tmp_path, RING, with_exchange(EXCHANGES[way]))
    assert done.returncode == 0, done.stderr


def test_ranks_that_wait_for_their_own_threads_get_a_hint(tmp_path: Path) -> None:
    done = run_by_hand(tmp_path, RING, with_exchange(STUCK_THREAD))
    assert "Which call doesn't wait?" in hint(done.stderr)
