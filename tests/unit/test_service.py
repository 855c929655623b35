"""`lab.service` prints nothing, and passes a line on once."""

from __future__ import annotations

import ast
from pathlib import Path

from lab.service.sweep import without_repeats

ROOT = Path(__file__).parents[2]


def test_a_service_prints_nothing() -> None:
    printing = [
        path.name
        for path in (ROOT / "lab/service").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert printing == []


def test_a_repeated_line_is_reported_once() -> None:
    output: list[str] = []
    once = without_repeats(output.append)
    for line in ("a", "b", "a", "c", "b"):
        once(line)
    assert output == ["a", "b", "c"]
