"""A small number of attacks: a command fails only with one line, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile import archives, arguments, configs, runs
from tests.hostile.calls import Said
from tests.support.conditions import ATTACKS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, value in (("LAB_STATE", "state"), ("HOME", ""), ("DOCKER_HOST", "")):
        monkeypatch.setenv(name, str(tmp_path / value))
    return tmp_path


SHARE = 50

# Kind to its attack, its inputs at a landing, and the inputs of `make hostile`, which takes
# LAB_ATTACKS times as many.
KINDS: dict[str, tuple[Callable[[int, Path], Iterator[str]], int, int]] = {
    "runs": (runs.attack, 5, 20),
    "archives": (archives.attack, 100, 300),
    "configs": (configs.attack, 150, 400),
    "arguments": (arguments.attack, 100, 150),
}
SHARES = [
    (kind, range(first, min(first + SHARE, inputs)))
    for kind, (_, few, many) in KINDS.items()
    for inputs in [few if ATTACKS == 1 else many * ATTACKS]
    for first in range(0, inputs, SHARE)
]


@pytest.mark.parametrize(("kind", "seeds"), SHARES, ids=str)
def test_no_attack_finds_a_fault(kind: str, seeds: range, folder: Path) -> None:
    found = {seed: list(KINDS[kind][0](seed, folder)) for seed in seeds}
    assert not any(found.values()), {seed: faults for seed, faults in found.items() if faults}


@pytest.mark.parametrize(
    ("code", "out", "err", "what"),
    [
        (0, "all\n", "", ""),
        (1, "", "error: x\n", ""),
        (1, "", "error: internal: KeyError: x\n", "a traceback"),
        (-1, "", "error: x\n", "it did not end"),
        (3, "", "error: x\n", "another exit code"),
        (1, "", "", "1 with 0 errors"),
        (0, "", "error: x\n", "0 with 1 errors"),
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
        ("cap_drop: [ALL]", "cap_drop: []"),
        ("source: ./scripts", "source: /etc"),
        ("LAB_PROJECT: mnist", "LAB_PROJECT: ${HOME}"),
        ("networks: [cluster]", "ports: ['80:80']"),
    ],
)
def test_unsafe_output(before: str, after: str) -> None:
    text = (runs.ROOT / "tests/golden/good/default.index.compose.yml").read_text("utf-8")
    assert bool(list(configs.unsafe(text.replace(before, after)))) is (before != after)
