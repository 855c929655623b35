"""A replay on a real terminal, as a class sees it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.agents import PATIENCE_S
from tests.support.commands import command, environ, lab
from tests.support.terminals import CTRL_C, terminal

SHOWN, HIDDEN = "\x1b[?25h", "\x1b[?25l"


def test_a_class_sees_who_is_slow(tmp_path: Path) -> None:
    words = command("attach", "straggler", "--speed", "20")
    with terminal(words, cwd=tmp_path, env=environ(tmp_path)) as screen:
        screen.until(r"replay of run \S+ of 2026-11-26 04:48 UTC, at speed 20", PATIENCE_S)
        screen.until(r"worker-0 +\S*training\S* .* 1\d\d +\d+\.\d+", PATIENCE_S)
        screen.until(r"worker-2: fault: slow:0\.3,300s worker-2 after 600 steps", PATIENCE_S)
        screen.until(r"worker-1 +\S*training\S* .* [23]\d +\d\.\d+ +[67]\d % of a step", PATIENCE_S)
        screen.until(r"run \S+: sync on local, \S*succeeded\S* after 43\.6 s", PATIENCE_S)
        assert screen.end(PATIENCE_S) == 0
    assert screen.said.rfind(SHOWN) > screen.said.rfind(HIDDEN) > 0


def test_ctrl_c_ends_a_replay_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    env = environ(tmp_path) | {"TMPDIR": str(tmp_path / "temporary")}
    with terminal(command("attach", "straggler", "--speed", "1"), cwd=tmp_path, env=env) as screen:
        screen.until(r"worker-0 +\S*training", PATIENCE_S)
        screen.type(CTRL_C)
        screen.until("error: interrupted", PATIENCE_S)
        assert screen.end(PATIENCE_S) == 130
    assert screen.said.rfind(SHOWN) > screen.said.rfind(HIDDEN) > 0
    assert [path.name for path in tmp_path.rglob("*")] == ["temporary"]


def test_in_a_pipe_a_replay_is_lines_and_json(tmp_path: Path) -> None:
    out, err = lab(tmp_path, "attach", "straggler", "--speed", "100", "--json")
    assert json.loads(out)["state"] == "succeeded"
    assert "worker-2: fault: slow" in err
    assert "\x1b" not in out + err
