"""The page of complaints shows what its programs print."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.support.commands import ROOT, call, lab
from tests.support.experiments import LOCAL
from tests.support.shown import assert_shows, output

pytestmark = pytest.mark.tensorflow

PAGE = "docs/tutorials/lessons/complaints.md"
FOLDER = "docs/tutorials/lessons/complaints"


def run(folder: Path, start: str, *then: str) -> str:
    """What the command at the beginning of a block prints, and what a second one prints."""
    words = shlex.split(output(PAGE, start).splitlines()[0].removeprefix("$ lab "))
    variables = {"LAB_RUNS_DIR": str(folder / "runs"), "LAB_STATE": str(folder / "state")}
    flags = LOCAL[:2] if "--gpus" in words else LOCAL
    out, _ = lab(ROOT, *words, *flags, **variables)
    return out + (lab(ROOT, *then, **variables)[0] if then else "")


def test_a_server_listens_on_every_interface(tmp_path: Path) -> None:
    printed = run(tmp_path, f"$ lab run {FOLDER}/listens.py", "logs", "last")
    assert_shows(PAGE, "$ lab run docs/tutorials/lessons/complaints/listens.py", printed)


def test_a_cluster_spec_is_fixed(tmp_path: Path) -> None:
    printed = call(tmp_path, sys.executable, ROOT / FOLDER / "fixed_spec.py")
    assert_shows(PAGE, "$ python docs/tutorials/lessons/complaints/fixed_spec.py", printed)


def test_the_parameter_server_is_ended(tmp_path: Path) -> None:
    printed = run(tmp_path, f"$ lab run {FOLDER}/joins.py")
    start = "$ lab run docs/tutorials/lessons/complaints/joins.py"
    assert_shows(PAGE, start, printed, figures=False)
