"""Find the command-line flags that a program declares, in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from lab.run.executed_source import executed

_DECLARING: Final = frozenset(
    {"add_argument", "add_option", "add", "add_arg", "option", "argument"}
)
"""Functions of argparse, optparse, configargparse and click that declare a flag."""

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
    NEXT = "the next argument"
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
        guessed: Whether its name is computed, so that the program may have no such flag.
    """

    flag: str
    names: tuple[str, ...]
    form: Form = Form.UNKNOWN
    choices: tuple[str, ...] = ()
    default: str = ""
    guessed: bool = False


def declared_flags(trees: Mapping[Path, ast.Module]) -> list[DeclaredFlag]:
    """Return the flags that a program declares, in the order of its source.

    If it computes names, as in `for name in NAMES: parser.add_argument(f"--{name}")`, each text of
    that module counts as such a name.

    Args:
        trees: The syntax trees of the program, which is the first, and of the modules that it
            imports.
    """
    bodies = executed(trees)
    functions = {
        each.name: each
        for body in bodies
        for each in ast.walk(body)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    found: list[DeclaredFlag] = []
    for body in bodies:
        computed = [call for call in _calls(body) if _declares(call) and not _literal(call)]
        for call in _calls(body):
            if _declares(call):
                found += _declared(call)
            elif _name(call.func) == "Fire" and call.args:
                found += _parameters(functions.get(_name(call.args[0])))
            elif _name(call.func) in {"getopt", "gnu_getopt"}:
                found += _long_options(call)
        found += _of_commands(body)
        if computed:
            found += _computed(computed, body, bodies)
    return found or [flag for body in bodies for flag in _by_hand(body)]


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _declares(call: ast.Call) -> bool:
    name = _name(call.func)
    if name.startswith(_DEFINE):
        return bool(_name_nodes(call))
    if name not in _DECLARING:
        return False
    if name in {"add", "add_arg"}:  # names with other meanings too
        return any(map(_FLAG.fullmatch, _texts(call.args)))
    return bool(call.args)


def _literal(call: ast.Call) -> bool:
    return bool(_texts(_name_nodes(call)))


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
        **{"str": Form.TEXT, "int": Form.WHOLE},
        **{"multi_string": Form.REPEATED, "multistring": Form.REPEATED},
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


def _parameters(function: ast.AST | None, *, typer: bool = False) -> Iterator[DeclaredFlag]:
    """Yield the flags that Fire or typer makes of a function's parameters, or of a constructor."""
    if isinstance(function, ast.ClassDef):
        made = (each for each in function.body if getattr(each, "name", "") == "__init__")
        function = next(made, None)
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    own = function.args
    parameters = [*own.posonlyargs, *own.args, *own.kwonlyargs]
    without = len(own.posonlyargs) + len(own.args) - len(own.defaults)
    defaults = [*[None] * without, *own.defaults, *own.kw_defaults]
    for parameter, default in zip(parameters, defaults, strict=True):
        if parameter.arg not in {"self", "cls"}:
            yield _parameter(parameter, default, typer=typer)


def _parameter(parameter: ast.arg, default: ast.expr | None, *, typer: bool) -> DeclaredFlag:
    annotation = parameter.annotation
    marks = [each for each in (annotation, default) if each is not None]
    mark = next((call for each in marks for call in _calls(each)), None)  # typer.Option("--job")
    if isinstance(annotation, ast.Subscript):  # Annotated[int, …], Optional[int], List[str]
        kind, inner = annotation.value, annotation.slice
        first = inner.elts[0] if isinstance(inner, ast.Tuple) else inner
        annotation = kind if _name(kind).lower() == "list" else first
    if mark is not None and mark is default:
        default = mark.args[0] if mark.args else None
    flags = [text for text in _texts(mark.args if mark else []) if _FLAG.fullmatch(text)]
    name = parameter.arg
    flag = (*flags, f"--{name.replace('_', '-') if typer else name}")[0]
    if typer and (_name(mark.func) == "Argument" if mark else default is None):
        flag = ""
    names = _plain([*flags, name])
    return DeclaredFlag(flag, names, _form(annotation, default), (), _shown(default))


def _of_commands(body: ast.AST) -> Iterator[DeclaredFlag]:
    """Yield the flags of typer's commands: `@app.command()`, or `typer.run(main)`."""
    imported = {_root(name) for name in imported_names(body)}
    if "typer" not in imported:
        return
    run = {_name(call.args[0]) for call in _calls(body) if _name(call.func) == "run" and call.args}
    for each in ast.walk(body):
        if isinstance(each, ast.FunctionDef) and (
            each.name in run or any(_is_command(made) for made in each.decorator_list)
        ):
            yield from _parameters(each, typer=True)


def _is_command(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and _name(decorator.func) in {"command", "callback"}


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a source imports, without its own package's."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _root(name: str) -> str:
    return name.partition(".")[0]


def _long_options(call: ast.Call) -> Iterator[DeclaredFlag]:
    """Yield the options with a value of a call of `getopt`."""
    listed = call.args[2] if len(call.args) > 2 else None  # noqa: PLR2004
    texts = _texts(listed.elts) if isinstance(listed, ast.List | ast.Tuple) else []
    for text in texts:
        name = text.removesuffix("=")
        form = Form.UNKNOWN if text.endswith("=") else Form.OTHER
        yield DeclaredFlag(f"--{name}", (name,), form)


def _by_hand(body: ast.AST) -> Iterator[DeclaredFlag]:
    """Yield the flags that a source looks for in `sys.argv`: `"--job_name="`, `"--job_name"`."""
    nodes = list(ast.walk(body))
    if "subprocess" in imported_names(body):  # they may be the flags of another program
        return
    if "argv" not in map(_name, nodes):
        return
    texts = _texts(node for node in nodes if isinstance(node, ast.Constant))
    from_second = any(_constant(getattr(node, "lower", None)) == 2 for node in nodes)  # noqa: PLR2004
    # It takes any `--name=value` apart: `dict(a[2:].split("=") for a in sys.argv[1:])`.
    takes_any = "=" in texts and (from_second or not {"-", "--"}.isdisjoint(texts))
    for text in texts:
        flag = text.removesuffix("=")
        if _FLAG.fullmatch(flag):
            form = Form.NEXT if flag == text else Form.UNKNOWN
            yield DeclaredFlag(flag, (flag.lstrip("-"),), form)
        elif takes_any:
            yield DeclaredFlag(f"--{text}", (text,), guessed=True)


def _computed(
    calls: Sequence[ast.Call], body: ast.AST, bodies: Iterable[ast.AST]
) -> Iterator[DeclaredFlag]:
    """Yield the flags that calls with computed names may declare."""
    wrappers = {
        each.name
        for each in ast.walk(body)
        if isinstance(each, ast.FunctionDef) and any(call in calls for call in _calls(each))
    }
    texts = dict.fromkeys(_names_in(body))
    for other in bodies:
        for call in _calls(other):
            if _name(call.func) in wrappers:
                texts |= dict.fromkeys(_texts(call.args))
    for call in calls:
        first = next(iter(_name_nodes(call)))
        before, after = _around(first)
        dashes = any(
            _name(each.func) == "replace" and _texts(each.args) == ["_", "-"]
            for each in _calls(first)
        )
        for text in texts:
            name = f"{before}{text}{after}".lstrip("-")
            name = name.replace("_", "-") if dashes else name
            yield DeclaredFlag(f"--{name}", (name,), guessed=True)


def _names_in(body: ast.AST) -> Iterator[str]:
    """Yield the texts of a module, and the keywords and attributes that can become names."""
    for node in ast.walk(body):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Call) and _name(node.func) == "dict":
            yield from (each.arg for each in node.keywords if each.arg)
        elif isinstance(node, ast.AnnAssign):
            yield _name(node.target)


def _around(name: ast.expr) -> tuple[str, str]:
    """Return the fixed texts before and after the computed part of a name."""
    if isinstance(name, ast.JoinedStr):
        parts = [_constant(each) for each in name.values]
        return str(parts[0] or ""), str(parts[-1] or "") if len(parts) > 1 else ""
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Add):
        left, right = name.left, name.right
        if isinstance(left, ast.BinOp):  # "--" + job + "_hosts"
            return str(_constant(left.left) or ""), str(_constant(right) or "")
        return str(_constant(left) or ""), str(_constant(right) or "")
    template = None
    if isinstance(name, ast.BinOp) and isinstance(name.op, ast.Mod):
        template = _constant(name.left)
    elif isinstance(name, ast.Call) and isinstance(name.func, ast.Attribute):
        template = _constant(name.func.value) if name.func.attr == "format" else None
    if not isinstance(template, str):
        return "", ""
    before, *after = re.split(r"%s|\{\w*\}", template, maxsplit=1)
    return before, "".join(after)


def _name(node: ast.AST | None) -> str:
    """Return the last part of a dotted name; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _constant(node: ast.AST | None) -> object:
    if isinstance(node, ast.UnaryOp):  # -1
        node = node.operand
    return node.value if isinstance(node, ast.Constant) else None


def _shown(node: ast.AST | None) -> str:
    value = _constant(node)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    values = [each.value for each in nodes if isinstance(each, ast.Constant)]
    return [value for value in values if isinstance(value, str)]
