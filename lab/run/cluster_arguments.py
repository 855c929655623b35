"""Find the arguments that describe the cluster to a user's program, from the flags it declares."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from lab.task.protocol.cluster_args import CLUSTER_ARGS
from lab.task.protocol.names import CLUSTER_FLAGS

_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "task_index": ("task_id",),
    "ps_hosts": ("ps",),
    "worker_hosts": ("worker",),
}

_DECLARING: Final = ("add_argument", "option")
_DEFINE: Final = "DEFINE_"
_OWN_FLAGS: Final = "lab.task"
"""A program that imports this may use lab's parser, which accepts every flag of the cluster."""


def cluster_args(programs: Iterable[ast.Module]) -> tuple[str, ...]:
    """Return the templates of the cluster's arguments that a program accepts.

    Args:
        programs: The syntax trees of the program and of the modules that it imports.

    A parser refuses unknown flags. So a program that declares flags (`argparse`, `tf.app.flags`,
    `absl.flags`, `click`) receives only the cluster flags that it declares. A program that declares
    no flags, or computes their names, receives all of them.
    """
    declares, declared = False, set[str]()
    for node in chain.from_iterable(map(ast.walk, programs)):
        if isinstance(node, ast.ImportFrom | ast.Import) and _imports_lab_parser(node):
            return CLUSTER_ARGS
        if isinstance(node, ast.Call) and _declares(node.func):
            names = _declared(node)
            if names is None:
                return CLUSTER_ARGS
            declares = True
            declared.update(names)
    if not declares:
        return CLUSTER_ARGS
    accepted = []
    for flag, value in CLUSTER_FLAGS.items():
        known = [name for name in (flag, *_ALIASES.get(flag, ())) if name in declared]
        accepted += [f"--{name}={value}" for name in known[:1]]
    return tuple(accepted)


def _imports_lab_parser(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    else:
        names = [each.name for each in node.names]
    return any(name == _OWN_FLAGS or name.startswith(f"{_OWN_FLAGS}.") for name in names)


def _declares(function: ast.expr) -> bool:
    name = _name(function)
    return name in _DECLARING or name.startswith(_DEFINE)


def _declared(call: ast.Call) -> set[str] | None:
    """Return the flags that a call declares, without dashes; None if their names are computed."""
    if _name(call.func).startswith(_DEFINE):
        # Only the first argument is the name; the others are the default and the help.
        nodes = call.args[:1] or [each.value for each in call.keywords if each.arg == "name"]
        names = _texts(nodes)
        return set(names) or None
    names = _texts(call.args)
    if not names:
        return None
    # A name without dashes is a positional argument, or the program's own name for the value.
    return {name.removeprefix("--") for name in names if name.startswith("--")}


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    values = [each.value for each in nodes if isinstance(each, ast.Constant)]
    return [value for value in values if isinstance(value, str)]
