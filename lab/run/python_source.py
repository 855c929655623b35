"""The sources of a program: checked, searched for flags and imports, converted from Python 2."""

from __future__ import annotations

import ast
import io
import re
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.errors import InputError
from lab.task.protocol import CLUSTER_FLAGS

SUFFIX: Final = ".py"

_DECLARING: Final = ("add_argument", "option")
_DEFINE: Final = "DEFINE_"
_OWN_FLAGS: Final = "lab.task"
"""A program that imports it may use its parser, which knows every flag of the cluster."""

_LEFT_OUT: Final = frozenset({"import"})
"""Turns `import two_layers` into an import that only works inside of a package."""

_TRUE_DIVISION: Final = re.compile(r"^from __future__ import .*\bdivision\b", re.MULTILINE)
_LINE_END: Final = re.compile(rb"\r?\n|\r")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file that was converted.

    Attributes:
        source: Its text in Python 3, in the encoding of the original.
        changes: Kind of change to its count: `{"print": 3, "xrange": 1}`.
        divides: Whether it divides by `/`, which Python 2 does without a rest between whole
            numbers: that cannot be seen in the text, and is not converted.
    """

    source: bytes
    changes: Mapping[str, int]
    divides: bool

    def __str__(self) -> str:
        counts = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.changes.items()))
        warning = "; `/` now divides with a fraction, also between whole numbers"
        return counts + warning * self.divides


def check_syntax(
    path: Path, converted: dict[Path, Conversion] | None = None
) -> Mapping[Path, ast.Module]:
    """Read a program and all modules of its directory that it comes to import.

    Args:
        path: The program.
        converted: Receives what was converted from Python 2, by its path relative to that
            directory; None: nothing is converted.

    Returns:
        Their syntax trees, by their paths relative to that directory.

    Raises:
        InputError: One of them cannot be read, or has a syntax error.
    """
    folder, program = path.parent, Path(path.name)
    trees = {program: _parse(folder, program, converted)}
    queue = [program]
    while queue:
        file = queue.pop()
        for name in _imported(file, trees[file]):
            for module in _modules(folder, name):
                if module not in trees:
                    trees[module] = _parse(folder, module, converted)
                    queue.append(module)
    return trees


def cluster_flags(program: ast.Module) -> tuple[str, ...]:
    """Those flags of the cluster that a program takes, under the names that it has for them.

    A parser refuses flags that it does not know. So a program that declares flags (`argparse`,
    `tf.app.flags`, `absl.flags`, `click`) is given those of the cluster that it declares; one that
    declares none, or computes their names, is given all of them.
    """
    declares, declared = False, set[str]()
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom | ast.Import) and _imports_our_parser(node):
            return tuple(CLUSTER_FLAGS)
        if isinstance(node, ast.Call) and _declares(node.func):
            names = _declared(node)
            if names is None:
                return tuple(CLUSTER_FLAGS)
            declares = True
            declared.update(names)
    if not declares:
        return tuple(CLUSTER_FLAGS)
    taken = []
    for flag, aliases in CLUSTER_FLAGS.items():
        taken += [name for name in (flag, *aliases) if name in declared][:1]
    return tuple(taken)


def _imports_our_parser(node: ast.Import | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    else:
        names = [each.name for each in node.names]
    return any(name == _OWN_FLAGS or name.startswith(f"{_OWN_FLAGS}.") for name in names)


def _declares(function: ast.expr) -> bool:
    name = _name(function)
    return name in _DECLARING or name.startswith(_DEFINE)


def _declared(call: ast.Call) -> set[str] | None:
    """The flags that a call declares, without dashes; None where their names are computed."""
    if _name(call.func).startswith(_DEFINE):
        # The name comes first; behind it stand the default and the help.
        nodes = call.args[:1] or [each.value for each in call.keywords if each.arg == "name"]
        names = _texts(nodes)
        return set(names) or None
    names = _texts(call.args)
    if not names:
        return None
    # Without dashes it is a positional argument, or what the program itself calls the value.
    return {name.removeprefix("--") for name in names if name.startswith("--")}


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _texts(nodes: Iterable[ast.expr]) -> list[str]:
    values = [each.value for each in nodes if isinstance(each, ast.Constant)]
    return [value for value in values if isinstance(value, str)]


def _parse(folder: Path, file: Path, converted: dict[Path, Conversion] | None) -> ast.Module:
    path = folder / file
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        fix = "check its path"
        if "=" in str(path):
            fix += f"; a task's own program is written worker-0=FILE{SUFFIX}"
        raise InputError(f"no program {path}", fix) from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror})", "check the path and its permissions"
        ) from error
    try:
        return _tree(source, path)
    except SyntaxError as error:
        conversion = None if converted is None else convert(source, str(path))
        if converted is not None and conversion is not None:
            converted[file] = conversion
            return _tree(conversion.source, path)
        place = f"{path}:{error.lineno or 1}:{error.offset or 1}"
        raise InputError(f"{place}: {error.msg}", "mend the program") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; far too deep nesting
        what = str(error) or "too deeply nested"
        raise InputError(f"{path}: {what}", "mend the program") from error


def _tree(source: bytes, path: Path) -> ast.Module:
    # Not by `ast.parse` alone: a `return` outside a function is found by the compiler only.
    compile(source, str(path), "exec", dont_inherit=True)
    return ast.parse(source, str(path))


def _imported(file: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """What a module imports, from the directory of the program on: `("pkg", "part")`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(each.name.split(".")) for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(file.parent.parts):
            above = file.parent.parts[: len(file.parent.parts) - node.level + 1]
            base = (*(above if node.level else ()), *(node.module or "").split("."))
            base = base if node.module else base[:-1]
            yield base
            yield from ((*base, each.name) for each in node.names if each.name != "*")


def _modules(folder: Path, name: tuple[str, ...]) -> Iterator[Path]:
    """The files that Python runs to import a name, outermost package first."""
    for count in range(1, len(name) + 1):
        module = Path(*name[:count])
        if _is_file(folder / module / "__init__.py"):
            yield module / "__init__.py"
        elif _is_file(folder / module.with_suffix(SUFFIX)):
            yield module.with_suffix(SUFFIX)
            return


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # another user's directory, of the same name as a library
        return False


def convert(source: bytes, name: str) -> Conversion | None:
    """Convert a program.

    Args:
        source: A program that is no Python 3.
        name: Its path, for messages.

    Returns:
        The program in Python 3; None where fissix cannot convert it, or makes no Python 3 of it.
    """
    changes: Counter[str] = Counter()
    tool = _tool(changes)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = _LINE_END.sub(b"\n", source).decode(encoding)
        ended = text if text.endswith("\n") else f"{text}\n"
        made = str(tool.refactor_string(ended, name))
        converted = made.encode(encoding)
        compile(converted, name, "exec", dont_inherit=True)
        tree = ast.parse(converted, name)
    except Exception:  # noqa: BLE001  (50 fixers on any text: then the syntax error stands)
        return None
    return Conversion(converted, changes, _divides(tree) and not _TRUE_DIVISION.search(text))


def _tool(changes: Counter[str]) -> Any:  # noqa: ANN401  (fissix has no types)
    """A converter with all fixers, which counts what each of them changes."""
    # Imported here: few programs need it. It would keep its grammar in the user's cache.
    import fissix  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        fissix.CACHE_DIR = Path(folder)
        from fissix import refactor  # noqa: PLC0415

    names = refactor.get_fixers_from_package("fissix.fixes")
    tool = refactor.RefactoringTool(
        [name for name in names if name.rpartition(".fix_")[2] not in _LEFT_OUT]
    )
    for fixer in (*tool.pre_order, *tool.post_order):
        _count(fixer, changes)
    return tool


def _count(fixer: Any, changes: Counter[str]) -> None:  # noqa: ANN401
    """Let a fixer count the places that it changes: by a new node, or in the tree itself."""
    kind = type(fixer).__module__.rpartition(".fix_")[2]
    transform = fixer.transform

    def counted(node: Any, results: Any) -> Any:  # noqa: ANN401
        top = node
        while top.parent is not None:
            top = top.parent
        node_before, before = str(node), str(top)
        new = transform(node, results)
        if (new is not None and str(new) != node_before) or str(top) != before:
            changes[kind] += 1
        return new

    fixer.transform = counted


def _divides(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
        for node in ast.walk(tree)
    )
