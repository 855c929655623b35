"""What a run does reaches the user by the logger, or as a result that a command prints."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]
SILENT = ("backends", "classroom", "placement", "program", "report", "reproduce", "run", "store")


def test_a_package_below_the_commands_prints_nothing() -> None:
    files = [path for each in SILENT for path in (ROOT / "lab" / each).rglob("*.py")]
    assert len(files) > len(SILENT)
    printing = [
        str(path)
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert printing == []
