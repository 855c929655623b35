"""What a program's source shows of GPUs: calls that fail without one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from lab.program.python_source import names_in
from lab.program.tensorflow_use import Use

_CHOICE: Final = re.compile(r"cuda|gpu|cpu|device|nccl|gloo|backend|available", re.IGNORECASE)
"""What a test has with which a program chooses between GPUs and CPUs."""

_TESTS: Final = ("test", "iter", "subject")
"""The fields of nodes that decide whether other nodes are executed."""


def gpu_use(trees: Mapping[Path, ast.Module]) -> tuple[Use, ...]:
    """Return the calls of PyTorch that fail without a GPU; none if the program may leave them out.

    It may if it has such a test or names Gloo, in any place. A call in a `try` that expects errors
    does not count, nor does one in a function that is not used.

    Args:
        trees: The syntax trees of the program and of the modules that it imports.
    """
    used, optional = names_in(trees.values()), set[ast.AST]()
    for node in chain.from_iterable(map(ast.walk, trees.values())):
        tests = [node] if isinstance(node, ast.BoolOp) else []
        tests += filter(None, (getattr(node, field, None) for field in _TESTS))
        may_choose = any(_CHOICE.search(ast.unparse(test)) for test in tests)
        if may_choose or getattr(node, "value", None) == "gloo":
            return ()
        if isinstance(node, ast.Try) and node.handlers:
            optional.update(chain.from_iterable(map(ast.walk, node.body)))
        elif isinstance(node, ast.FunctionDef) and node.name not in used:
            optional.update(ast.walk(node))
    found = [
        Use(need, file, node.lineno)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node not in optional
        for need in _needs(node)
    ]
    return tuple({use.what: use for use in reversed(found)}.values())[::-1]


def _needs(call: ast.Call) -> Iterator[str]:
    """Yield what a call needs of a GPU."""
    function = ast.unparse(call.func)
    if function == "torch.cuda.set_device":
        yield function
    elif function.rpartition(".")[2] == "init_process_group":
        backends = [*call.args[:1], *(each.value for each in call.keywords)]
        if any(getattr(value, "value", None) == "nccl" for value in backends):
            yield "backend nccl"
