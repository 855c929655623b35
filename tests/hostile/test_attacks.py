"""A small number of attacks: a command fails only with one line, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hostile import archives, arguments, configs, runs
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
