"""Operations that a printed program calls as if they were functions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Final

OPERATIONS: Final = frozenset({"local_step_init_op", "chief_init_op", "ready_for_local_init_op"})
"""What SyncReplicasOptimizer has as attributes, each an operation or what it gives."""


def without_calls(program: ast.Module, tell: Callable[[str], None]) -> ast.Module:
    """The program with these operations themselves where it calls them.

    Args:
        program: Its syntax tree, which is changed.
        tell: Receives one line for each of them.
    """
    changed: ast.Module = _Uncalled(tell).visit(program)
    return changed


class _Uncalled(ast.NodeTransformer):
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr in OPERATIONS
            and not node.args
            and not node.keywords
        ):
            what = f"{function.attr} is an operation, called as if it were a function"
            self._tell(f"mended: line {node.lineno}: {what}")
            return function
        return node
