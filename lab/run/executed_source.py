"""The parts of a program and its modules that are executed when the program starts."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

_DYNAMIC: Final = frozenset(
    {"import_module", "__import__", "exec", "execfile", "load_module", "exec_module", "run_path"}
    | {"run_module", "SourceFileLoader", "spec_from_file_location"}
)
"""Functions that import a module by a computed name."""


def imports_dynamically(trees: Iterable[ast.Module]) -> bool:
    """Whether a program may import modules that its import statements do not name."""
    return any(
        isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in _DYNAMIC
        for tree in trees
        for node in ast.walk(tree)
    )


def executed(trees: Mapping[Path, ast.Module]) -> list[ast.Module]:
    """Return the source of each module without the parts that are not executed.

    In an imported module, these are the block below `if __name__ == "__main__":`, and functions
    that are named nowhere else, such as the `main()` of that block.

    Args:
        trees: The syntax trees; the program is the first.
    """
    program, *modules = trees.values()
    bodies = [
        ast.Module([each for each in module.body if not _is_main_block(each)], [])
        for module in modules
    ]
    while True:
        named = _named([program, *bodies])
        fewer = [
            ast.Module([each for each in body.body if not _is_unused(each, named)], [])
            for body in bodies
        ]
        if [len(body.body) for body in fewer] == [len(body.body) for body in bodies]:
            return [program, *bodies]
        bodies = fewer


def _is_main_block(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        getattr(each, "id", "") == "__name__" for each in ast.walk(node.test)
    )


def _is_unused(node: ast.stmt, named: Mapping[str, int]) -> bool:
    # A decorator may register a function, so that it is called without its name.
    if not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return False
    return named.get(node.name, 0) <= _own(node)


def _own(function: ast.FunctionDef) -> int:
    """Return how often a function names itself."""
    return _named([function]).get(function.name, 0)


def _named(trees: Sequence[ast.AST]) -> dict[str, int]:
    """Return how often each name is used, without its definition."""
    counts: dict[str, int] = {}
    for tree in trees:
        for node in ast.walk(tree):
            names = [getattr(node, "id", None), getattr(node, "attr", None)]
            if isinstance(node, ast.ImportFrom):
                names += [each.name for each in node.names]
            for name in names:
                if isinstance(name, str):
                    counts[name] = counts.get(name, 0) + 1
    return counts
