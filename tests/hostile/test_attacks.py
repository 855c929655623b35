"""A small number of attacks: a command fails only with one line, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import archives, arguments, configs, runs
from tests.hostile.calls import Said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in (("LAB_STATE", "state"), ("HOME", ""), ("DOCKER_HOST", "")):
        monkeypatch.setenv(name, str(tmp_path / value))
    return tmp_path


@pytest.mark.parametrize("seed", range(40))
def test_commands_on_a_damaged_run(seed: int, folder: Path) -> None:
    assert list(runs.attack(seed, folder)) == []


@pytest.mark.parametrize("seed", range(1, 13))
def test_records_beside_damaged_lines(seed: int, folder: Path) -> None:
    assert list(runs.attack_records(seed, folder)) == []


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_changed_archives(first: int, folder: Path) -> None:
    found = {seed: list(archives.attack(seed, folder)) for seed in range(first, first + 50)}
    assert not any(found.values()), found


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_changed_configs(first: int, folder: Path) -> None:
    found = {seed: list(configs.attack(seed, folder)) for seed in range(first, first + 50)}
    assert not any(found.values()), found


@pytest.mark.parametrize("first", range(0, 150, 25))
def test_odd_command_lines(first: int, folder: Path) -> None:
    # `lab doctor` may take ten seconds.
    seeds = [s for s in range(first, first + 25) if arguments.argument_list(s)[0] != "doctor"]
    found = {seed: list(arguments.attack(seed, folder)) for seed in seeds}
    assert not any(found.values()), found


@pytest.mark.parametrize(
    ("code", "out", "err", "what"),
    [
        (0, "all\n", "", ""),
        (1, "", "error: x\n", ""),
        (2, "", "cluster.yaml:3: x\n", ""),
        (1, "", "error: internal: KeyError: x\n", "a traceback"),
        (-1, "", "error: x\n", "it did not end"),
        (3, "", "error: x\n", "another exit code"),
        (1, "", "", "1 with 0 errors"),
        (0, "", "error: x\n", "0 with 1 errors"),
        (1, "", "error: x\nerror: y\n", "1 with 2 errors"),
        (1, "", f"error: {'x' * 2000}\n", "too long"),
        (0, "\x1b[31m", "", "control characters"),
        (0, "", "RuntimeWarning: overflow\n", "a warning of a library"),
    ],
)
def test_faults_of_commands(code: int, out: str, err: str, what: str) -> None:
    found = list(Said(("runs",), code, out, err).faults())
    assert [what in fault for fault in found] == ([True] if what else [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("name: mnist", "name: mnist"),
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
    assert bool(list(configs.unsafe(text.replace(before, after)))) is (before != after)
