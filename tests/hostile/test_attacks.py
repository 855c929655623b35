"""A small number of attacks: a command fails only with one line, and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hostile import archives, arguments, configs, records, runs
from tests.hostile.calls import Column, Said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    for name, value in (("LAB_STATE", "state"), ("HOME", ""), ("DOCKER_HOST", "")):
        monkeypatch.setenv(name, str(tmp_path / value))
    return tmp_path


@pytest.mark.parametrize("seed", range(40))
def test_commands_on_a_damaged_run(seed: int, folder: Path) -> None:
    assert list(runs.attack(seed, folder)) == []


@pytest.mark.parametrize("seed", range(1, 13))
def test_records_beside_damaged_lines(seed: int, folder: Path) -> None:
    assert list(records.attack(seed, folder)) == []


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_changed_archives(first: int, folder: Path) -> None:
    for seed in range(first, first + 50):
        assert list(archives.attack(seed, folder)) == [], seed


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_changed_configs(first: int, folder: Path) -> None:
    for seed in range(first, first + 50):
        assert list(configs.attack(seed, folder)) == [], seed


@pytest.mark.parametrize("first", range(0, 150, 25))
def test_odd_command_lines(first: int, folder: Path) -> None:
    arguments.prepare(folder)
    for seed in range(first, first + 25):
        if arguments.argument_list(seed)[0] != "doctor":  # it may take ten seconds
            assert list(arguments.attack(seed, folder)) == [], seed


@pytest.mark.parametrize(
    ("output", "column"),
    [
        (Said(("runs",), 1, "", "error: internal: KeyError: x\n"), Column.TRACEBACK),
        (Said(("runs",), -1, "", ""), Column.HANG),
        (Said(("runs",), 3, "", "error: x\n"), Column.MESSAGE),
        (Said(("runs",), 1, "", ""), Column.MESSAGE),
        (Said(("runs",), 0, "", "error: x\n"), Column.MESSAGE),
        (Said(("runs",), 1, "", "error: x\nerror: y\n"), Column.MESSAGE),
        (Said(("runs",), 1, "", f"error: {'x' * 2000}\n"), Column.MESSAGE),
        (Said(("runs",), 0, "\x1b[31m", ""), Column.MESSAGE),
        (Said(("runs",), 0, "", "RuntimeWarning: overflow\n"), Column.MESSAGE),
    ],
)
def test_faults_of_commands(output: Said, column: Column) -> None:
    assert column in [fault.column for fault in output.faults()]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("internal: true", "internal: false"),
        ("cap_drop: [ALL]", "cap_drop: []"),
        ("source: ./scripts", "source: /etc"),
        ("LAB_PROJECT: mnist", "LAB_PROJECT: ${HOME}"),
        ("networks: [cluster]", "ports: ['80:80']"),
        ("name: mnist", "name: \u202emnist"),
    ],
)
def test_unsafe_output(before: str, after: str) -> None:
    text = (runs.ROOT / "tests/golden/good/default.none.compose.yml").read_text("utf-8")
    assert list(configs.unsafe(text)) == []
    assert list(configs.unsafe(text.replace(before, after)))
