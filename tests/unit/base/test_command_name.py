"""The commands in messages work as they stand, with an activated environment or without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.base.console import command_name, show, with_command_name
from lab.cli import main

HINT = "boot it with `lab up`, see `lab ps --json`; the `lab` of that directory; `make lab up`"


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my project/.venv/bin"
    folder.mkdir(parents=True)
    (folder / "lab").write_text(f'#!/bin/sh\nexec {sys.executable} -m lab "$@"\n')
    (folder / "lab").chmod(0o755)
    monkeypatch.chdir(tmp_path / "my project")
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    return folder


def test_an_activated_environment_needs_no_path(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{venv}:/usr/bin:/bin")
    assert command_name() == "lab"
    assert with_command_name(HINT) == HINT


def test_without_it_a_command_has_the_path_of_lab(
    venv: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = (
        "boot it with `.venv/bin/lab up`, see `.venv/bin/lab ps --json`; the `lab` of that"
        " directory; `make lab up`"
    )
    show(HINT)
    assert capsys.readouterr().err == f"{shown}\n"
    assert command_name() == ".venv/bin/lab"
    assert main([]) == 0
    assert "Start with `.venv/bin/lab run async" in capsys.readouterr().out
    assert main(["shwo"]) == 2
    assert "see `.venv/bin/lab --help`" in capsys.readouterr().err
    # Another `lab` is found first, and this one is started from another directory.
    (tmp_path / "lab").write_text("#!/bin/sh\n")
    (tmp_path / "lab").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(venv)
    command = f"{command_name()} --help"
    assert command == f"'{venv}/lab' --help"
    done = subprocess.run(["sh", "-c", command], capture_output=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr


def test_a_removed_directory_hides_no_message(
    venv: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    show("boot it with `lab up`")
    assert capsys.readouterr().err == f"boot it with `'{venv}/lab' up`\n"


def test_without_a_script_python_starts_lab(venv: Path) -> None:
    (venv / "lab").unlink()
    assert command_name() == ".venv/bin/python -m lab"
