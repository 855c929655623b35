"""An analysis of a program's source: may TensorFlow be imported before the program starts?

It may if the program only has a docstring and harmless imports before its import of TensorFlow.
A program that runs other code first, such as setting a variable for TensorFlow, must import
TensorFlow itself.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final

_TENSORFLOW: Final = "tensorflow"
# `lab` is the recorder and related modules; TensorFlow itself imports NumPy.
_HARMLESS: Final = sys.stdlib_module_names | {"lab", "numpy"}


def unavailable_reason(program: Path) -> str | None:
    """Why a program must import TensorFlow itself; None if it may be imported earlier.

    Args:
        program: The path of its source.
    """
    try:
        body = ast.parse(program.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return "its source cannot be read"
    for statement in body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        modules = _modules(statement)
        if not modules:
            break
        for name in sorted(modules):
            if name not in _HARMLESS | {_TENSORFLOW} or _lies_beside(program, name):
                return f"it imports {name} before TensorFlow"
        if _TENSORFLOW in modules:
            return None
    return "it runs code before it imports TensorFlow, or does not import it"


def _lies_beside(program: Path, module: str) -> bool:
    """Whether the program's directory has a module of this name, which Python finds first."""
    return any((program.parent / name).exists() for name in (f"{module}.py", module))


def _modules(statement: ast.stmt) -> set[str]:
    """The packages that a statement imports; empty if it is not an import."""
    if isinstance(statement, ast.Import):
        return {alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return {statement.module.partition(".")[0]}
    return set()
