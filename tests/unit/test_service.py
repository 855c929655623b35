"""`lab.service`: the layers above and below it, and a line that is passed on once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.service.sweep import without_repeats

ROOT = Path(__file__).parents[2]


def imported(package: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                yield path, node.module
            elif isinstance(node, ast.Import):
                yield from ((path, each.name) for each in node.names)


@pytest.mark.parametrize(
    ("package", "unwanted"),
    [
        ("lab/service", ("lab.cli", "lab.api", "lab.console")),
        ("lab/cli", ("lab.api",)),
        ("lab/api", ("lab.cli",)),
    ],
)
def test_commands_and_python_share_services_and_not_each_other(
    package: str, unwanted: tuple[str, ...]
) -> None:
    found = list(imported(package))
    assert found
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path, module in found
        if any(module == each or module.startswith(f"{each}.") for each in unwanted)
    ]
    assert wrong == []


def test_a_service_prints_nothing() -> None:
    for path in sorted((ROOT / "lab/service").glob("*.py")):
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert "print" not in calls, path.name


def test_a_repeated_line_is_reported_once() -> None:
    output: list[str] = []
    once = without_repeats(output.append)
    for line in ("a", "b", "a", "c", "b"):
        once(line)
    assert output == ["a", "b", "c"]
