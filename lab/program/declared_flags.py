"""Find the command-line flags that a program declares, in the parts of its source that run."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from lab.program.python_source import imported_by_call, names_in

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
    names = names_in(found)
    while called := [each for each in functions if each.name in names]:
        functions = [each for each in functions if each not in called]
        found += called
        names |= names_in(called)
    return found


def _is_main_block(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(
        getattr(each, "id", "") == "__name__" for each in ast.walk(node.test)
    )


_DECLARING: Final = frozenset({"add_argument", "add_option", "option", "argument"})
"""Functions of argparse, optparse and click that declare a flag."""

_DEFINE: Final = "DEFINE_"
"""The prefix of the functions of `tf.app.flags` and `absl.flags`."""

_FLAG: Final = re.compile(r"--?[A-Za-z]\w*(?:[-.]\w+)*")
_SWITCHES: Final = frozenset(
    {"store_true", "store_false", "store_const", "count", "help", "version"}
    | {"BooleanOptionalAction"}
)


class Form(Enum):
    """How a flag takes its value."""

    TEXT = "a text"
    WHOLE = "a whole number"
    SEVERAL = "several arguments after the flag"
    REPEATED = "the flag once for each value"
    UNKNOWN = "the source does not show it"
    OTHER = "a number or a switch"


@dataclass(frozen=True, slots=True)
class DeclaredFlag:
    """A flag that a program declares.

    Attributes:
        flag: The flag as it is written on the command line; "" for a positional argument.
        names: Its names: the flags without dashes, and the program's name for the value.
        form: How it takes its value.
        choices: All values that it accepts, if the source lists them.
        default: Its default, if it is a text or a whole number.
    """

    flag: str
    names: tuple[str, ...]
    form: Form = Form.UNKNOWN
    choices: tuple[str, ...] = ()
    default: str = ""


def declared_flags(trees: Mapping[Path, ast.Module]) -> list[DeclaredFlag]:
    """Return the flags that a program declares, in the order of its source.

    Args:
        trees: The syntax trees of the program, which is the first, and of the modules that it
            imports.
    """
    found: list[DeclaredFlag] = []
    parts = executed(trees)
    for call in (call for part in (*parts, *_unrolled(parts)) for call in _calls(part)):
        kind = _name(call.func)
        if kind.startswith(_DEFINE) or kind in _DECLARING:
            found += _declared(call)
        elif kind in {"getopt", "gnu_getopt"}:
            found += _long_options(call)
    return found


def _unrolled(parts: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yield the statements of each loop over texts, once for each of its texts.

    `for name in ("job_name", "task_index"): parser.add_argument(f"--{name}")` declares two flags.
    """
    for loop in (node for part in parts for node in ast.walk(part)):
        if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple | ast.List):
            for text in _texts(loop.iter.elts):
                put = _Put(_name(loop.target), text)
                yield from (put.visit(copy.deepcopy(each)) for each in loop.body)


class _Put(ast.NodeTransformer):
    """Puts a text in the place of a variable."""

    def __init__(self, variable: str, text: str) -> None:
        self._variable, self._text = variable, text

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self._text) if node.id == self._variable else node


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name_nodes(call: ast.Call) -> Sequence[ast.expr]:
    """Return the arguments of a declaring call that can be names."""
    if not _name(call.func).startswith(_DEFINE):
        return call.args
    # The others are the default and the help.
    named = [each.value for each in call.keywords if each.arg in {"name", "flag_name"}]
    return call.args[:1] or named


def _declared(call: ast.Call) -> Iterator[DeclaredFlag]:
    texts = _texts(_name_nodes(call))
    if not texts:
        return
    given = {each.arg: each.value for each in call.keywords if each.arg}
    kind = _name(call.func)
    if kind.startswith(_DEFINE):
        form, choices, default = _absl(kind, call, given)
        yield DeclaredFlag(f"--{texts[0]}", (texts[0],), form, choices, default)
        return
    flags = [text for text in texts if _FLAG.fullmatch(text)]
    if not flags and (kind.endswith("option") or texts[0].startswith("-")):
        return  # the two flags of a switch of click: "--shout/--no-shout"
    flag = next((text for text in flags if text.startswith("--")), (*flags, "")[0])
    names = [*texts, *_texts([given["dest"]] if "dest" in given else [])]
    form, choices, default = _argparse(kind, given)
    yield DeclaredFlag(flag, _plain(names), form, choices, default)


def _plain(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.lstrip("-") for name in names))


def _absl(
    kind: str, call: ast.Call, given: Mapping[str, ast.expr]
) -> tuple[Form, tuple[str, ...], str]:
    form = {
        **{"string": Form.TEXT, "enum": Form.TEXT, "list": Form.TEXT, "integer": Form.WHOLE},
        **{"multi_string": Form.REPEATED},
    }.get(kind.removeprefix(_DEFINE).lower(), Form.OTHER)
    values = call.args[1:2]
    values += [given[name] for name in ("default", "default_value") if name in given]
    listed = call.args[2] if len(call.args) > 2 else given.get("enum_values")  # noqa: PLR2004
    is_enum = kind.lower().endswith("enum")
    choices = _texts(listed.elts) if is_enum and isinstance(listed, ast.List | ast.Tuple) else []
    return form, tuple(choices), _shown(values[0]) if values else ""


def _argparse(kind: str, given: Mapping[str, ast.expr]) -> tuple[Form, tuple[str, ...], str]:
    """Return the form, the choices and the default of a flag of argparse, optparse or click."""
    default = given.get("default")
    choices = given.get("choices") or given.get("type")
    if isinstance(choices, ast.Call):  # click.Choice(["ps", "worker"])
        choices = next(iter(choices.args), None)
    listed = choices.elts if isinstance(choices, ast.List | ast.Tuple | ast.Set) else []
    action = _constant(given.get("action")) or _name(given.get("action"))
    if action in _SWITCHES or _constant(given.get("is_flag")) is True:
        form = Form.OTHER
    elif action == "append" or _constant(given.get("multiple")) is True:
        form = Form.REPEATED
    elif kind == "add_argument" and _constant(given.get("nargs")) not in {None, "?"}:
        form = Form.SEVERAL
    else:
        form = _form(given.get("type"), default)
    return form, tuple(_texts(listed)), _shown(default)


def _form(type_: ast.expr | None, default: ast.expr | None) -> Form:
    """Return the form by the type; without one, by the default."""
    kind = _constant(type_) or _name(type_)
    value = _constant(default)
    known = {
        **{"int": Form.WHOLE, "float": Form.OTHER, "bool": Form.OTHER, "str": Form.TEXT},
        **{"string": Form.TEXT, "list": Form.REPEATED, "List": Form.REPEATED},
    }
    if isinstance(kind, str) and kind in known:
        return known[kind]
    for of, form in ((bool, Form.OTHER), (int, Form.WHOLE), (float, Form.OTHER), (str, Form.TEXT)):
        if isinstance(value, of):
            return form
    return Form.TEXT if kind else Form.UNKNOWN


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a source imports, without its own package's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _long_options(call: ast.Call) -> Iterator[DeclaredFlag]:
    """Yield the options with a value of a call of `getopt`."""
    listed = call.args[2] if len(call.args) > 2 else None  # noqa: PLR2004
    texts = _texts(listed.elts) if isinstance(listed, ast.List | ast.Tuple) else []
    for text in texts:
        name = text.removesuffix("=")
        form = Form.UNKNOWN if text.endswith("=") else Form.OTHER
        yield DeclaredFlag(f"--{name}", (name,), form)


def _name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _constant(node: ast.AST | None) -> object:
    if isinstance(node, ast.UnaryOp):  # -1
        node = node.operand
    return node.value if isinstance(node, ast.Constant) else None


def _shown(node: ast.AST | None) -> str:
    if isinstance(node, ast.List | ast.Tuple):
        return ",".join(map(_shown, node.elts))
    value = _constant(node)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    return [text for text in map(_text, nodes) if text is not None]


def _text(node: ast.expr) -> str | None:
    """Return a text, also one that is put together from texts; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        values = [
            each.value if isinstance(each, ast.FormattedValue) else each for each in node.values
        ]
        texts = _texts(values)
        return "".join(texts) if len(texts) == len(values) else None
    if isinstance(node, ast.BinOp):
        left, right = _text(node.left), _text(node.right)
        if left is not None and right is not None:
            return left + right if isinstance(node.op, ast.Add) else left.replace("%s", right, 1)
    return None
