"""`lab.service` prints nothing."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_service_prints_nothing() -> None:
    printing = [
        path.name
        for path in (ROOT / "lab/service").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert printing == []
