"""The assignment `server` as `lab check` tests it; those of PyTorch have tests with a framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.assignments.server import SERVER
from tests.assignments.solution import Wrong
from tests.support.cli import CLUSTER, Cli
from tests.support.shown import assert_shows

PAGE = "docs/tutorials/assignments.md"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Path:
    """The program in a student's project."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    cli("init", "--course")
    return tmp_path / "course/server.py"


def said(cli: Cli, code: int) -> str:
    """What `lab check` says, in one line."""
    return " ".join(cli("check", "server", code=code).out.split())


def test_a_student_sees_what_to_write_and_what_is_wrong(program: Path, cli: Cli) -> None:
    assert_shows(PAGE, "Write an asynchronous", cli("check", "server").out)
    mistake = next(each for each in SERVER.wrong if each.name == "the step before this update")
    program.write_text(SERVER.with_mistake(mistake))
    assert_shows(PAGE, "✗ code", cli("check", "server", code=1).out)
    program.write_text(SERVER.filled())
    out = said(cli, code=0)
    assert "✓ code" in out
    assert "no run of server has ended yet: `lab run server`" in out
    assert "1 of 4" in next(line for line in cli("check").out.splitlines() if line[:7] == "server ")
    assert "✓ code" in cli("check", "server", "--key").out


@pytest.mark.parametrize("wrong", SERVER.wrong, ids=lambda wrong: wrong.name)
@pytest.mark.usefixtures("program")
def test_a_mistake_has_its_own_hint(program: Path, cli: Cli, wrong: Wrong) -> None:
    program.write_text(SERVER.with_mistake(wrong))
    seen = said(cli, code=1)
    assert wrong.hint in seen
    assert [each.name for each in SERVER.wrong if each.hint in seen] == [wrong.name]
