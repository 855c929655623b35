"""A damaged run hides no other, and no command fails on it but in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.runs import BAD, HEAVY, LIGHT, copy_runs, damage, say


@pytest.mark.parametrize("seed", range(60))
def test_commands_on_a_damaged_run(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAB_STATE", str(tmp_path / "state"))
    home = tmp_path / "runs"
    home.mkdir()
    copy_runs(home)
    done = damage(home / BAD, seed)
    for words in LIGHT + (HEAVY if seed % 20 == 0 else ()):
        said = say(words, home, capsys)
        assert not said.fault(), f"{said.fault()}: {' '.join(words)} ({done})\n{said.err[-3000:]}"
