"""The parts of a program and its modules that are executed when the program starts."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from lab.program.python_source import imported_by_call

_DYNAMIC: Final = frozenset(
    {"exec", "execfile", "load_module", "exec_module", "run_path", "run_module"}
    | {"SourceFileLoader", "spec_from_file_location"}
)
"""Functions that import a module by a computed name."""


def imports_dynamically(trees: Iterable[ast.Module]) -> bool:
    """Whether a program may import modules that its import statements do not name."""
    nodes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(
        imported_by_call(node) == ""
        or (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in _DYNAMIC
        for node in nodes
    )


def executed(trees: Mapping[Path, ast.Module]) -> list[ast.AST]:
    """Return the program, and the statements of its modules that it executes.

    These are not the block below `if __name__ == "__main__":` in an imported module, and functions
    that no executed statement names, such as the `main()` of that block.

    Args:
        trees: The syntax trees; the program is the first.
    """
    program, *modules = trees.values()
    statements = [each for module in modules for each in module.body if not _is_main_block(each)]
    # A decorator may register a function, so that it is called without its name.
    functions = [
        each for each in statements if isinstance(each, ast.FunctionDef) and not each.decorator_list
    ]
    found = [program, *(each for each in statements if each not in functions)]
    names = _names(found)
    while called := [each for each in functions if each.name in names]:
        functions = [each for each in functions if each not in called]
        found += called
        names |= _names(called)
    return found


def _is_main_block(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        getattr(each, "id", "") == "__name__" for each in ast.walk(node.test)
    )


def _names(trees: Iterable[ast.AST]) -> set[str]:
    """Return the names that are used, without those that are defined."""
    names: set[str] = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.ImportFrom):
            names |= {each.name for each in node.names}
        else:
            names |= {getattr(node, "id", ""), getattr(node, "attr", "")}
    return names
