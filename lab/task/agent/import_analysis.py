"""Whether a program may find TensorFlow imported before its own first line; from its source alone.

It may where its own import of TensorFlow would have come first anyway: what stands above it is a
docstring and imports of modules that have no part in how TensorFlow starts. A program that sets a
variable for TensorFlow, or does whatever else, before it imports it, imports it itself.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final

_TENSORFLOW: Final = "tensorflow"
# `lab` is the recorder and its kin, NumPy comes with TensorFlow.
_HARMLESS: Final = sys.stdlib_module_names | {"lab", "numpy"}


def unavailable_reason(program: Path) -> str | None:
    """Why a program has to import TensorFlow itself; None where it may find it imported.

    Args:
        program: Its source.
    """
    try:
        body = ast.parse(program.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return "its source cannot be read"
    for statement in body:
        if _is_docstring(statement):
            continue
        modules = _modules(statement)
        if not modules:
            return "it does something before it imports TensorFlow, or does not import it"
        if _TENSORFLOW in modules:
            return _last_part(program, modules)
        for name in modules:
            if name not in _HARMLESS or _lies_beside(program, name):
                return f"it imports {name} before TensorFlow"
    return "it does not import TensorFlow"


def _last_part(program: Path, modules: set[str]) -> str | None:
    if modules != {_TENSORFLOW}:
        return "it imports more beside TensorFlow at once"
    return f"another {_TENSORFLOW} lies beside it" if _lies_beside(program, _TENSORFLOW) else None


def _lies_beside(program: Path, module: str) -> bool:
    """Whether Python finds a module beside the program before any other of that name."""
    return any((program.parent / each).exists() for each in (f"{module}.py", module))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _modules(statement: ast.stmt) -> set[str]:
    """The packages that a statement imports; none where it is no import."""
    if isinstance(statement, ast.Import):
        return {alias.name.partition(".")[0] for alias in statement.names}
    if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        return {statement.module.partition(".")[0]}
    return set()
