"""Check the sources of a program, find its imports, and convert it from Python 2."""

from __future__ import annotations

import ast
import io
import re
import tempfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final

from lab.errors import InputError

SUFFIX: Final = ".py"

_LEFT_OUT: Final = frozenset({"import"})
"""Fixers that are not used: `import` makes imports that only work inside a package."""

_IMPORT_CALL: Final = re.compile(r"([\w.]*\bimport_module|__import__)\('horovod\b")

_TRUE_DIVISION: Final = re.compile(r"^from __future__ import .*\bdivision\b", re.MULTILINE)
_LINE_END: Final = re.compile(rb"\r?\n|\r")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file that was converted.

    Attributes:
        source: The text in Python 3, in the encoding of the original.
        changes: Kind of change to the number of changes: `{"print": 3, "xrange": 1}`.
        divides: Whether the file divides by `/`. In Python 2, `/` of two integers rounds down. The
            text does not show the types, so `/` is not converted.
    """

    source: bytes
    changes: Mapping[str, int]
    divides: bool

    def __str__(self) -> str:
        counts = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.changes.items()))
        warning = "; `/` of two integers now gives a fraction"
        return counts + warning * self.divides


def check_syntax(
    path: Path, converted: dict[Path, Conversion] | None = None
) -> Mapping[Path, ast.Module]:
    """Parse a program and all modules of its directory that it imports, directly or indirectly.

    Args:
        path: The program.
        converted: Receives the files converted from Python 2, by path relative to the directory;
            None: nothing is converted.

    Returns:
        The syntax trees, by path relative to the directory.

    Raises:
        InputError: A file cannot be read, or has a syntax error.
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


def imports_horovod(trees: Mapping[Path, ast.Module]) -> bool:
    """Return whether a program or one of its modules imports Horovod, in any place.

    Args:
        trees: The syntax trees, by path relative to the program's directory.
    """
    if any(file.parts[0] in {"horovod", f"horovod{SUFFIX}"} for file in trees):
        return False  # the user has a module of this name
    imports = any(
        name[:1] == ("horovod",) for file, tree in trees.items() for name in _imported(file, tree)
    )
    return imports or any(map(_names_horovod, chain.from_iterable(map(ast.walk, trees.values()))))


def uses_estimator(trees: Iterable[ast.Module]) -> bool:
    """Return whether a program or one of its modules uses TensorFlow's Estimator."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "estimator")
        or (isinstance(node, ast.ImportFrom | ast.Import) and "estimator" in ast.unparse(node))
        for node in chain.from_iterable(map(ast.walk, trees))
    )


def _names_horovod(node: ast.AST) -> bool:
    """Whether a node calls `import_module` or `__import__` for Horovod."""
    return isinstance(node, ast.Call) and _IMPORT_CALL.match(ast.unparse(node)) is not None


def _parse(folder: Path, file: Path, converted: dict[Path, Conversion] | None) -> ast.Module:
    path = folder / file
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        fix = "check its path"
        if "=" in str(path):
            fix += f"; write the program of a task as worker-0=FILE{SUFFIX}"
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
        raise InputError(f"{place}: {error.msg}", "fix the program") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; too deep nesting
        what = str(error) or "too deeply nested"
        raise InputError(f"{path}: {what}", "fix the program") from error


def _tree(source: bytes, path: Path) -> ast.Module:
    # `ast.parse` is not enough: only the compiler finds a `return` outside a function.
    compile(source, str(path), "exec", dont_inherit=True)
    return ast.parse(source, str(path))


def _imported(file: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
    """Yield the names that a module imports, relative to the program: `("pkg", "part")`."""
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
    """Yield the files that Python executes to import a name, the outermost package first."""
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
    except OSError:  # for example, another user's directory with the name of a library
        return False


def convert(source: bytes, name: str) -> Conversion | None:
    """Convert a program from Python 2 to Python 3.

    Args:
        source: A program that is not valid Python 3.
        name: Its path, for messages.

    Returns:
        The conversion; None if fissix fails, or its result is not valid Python 3.
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
    except Exception:  # noqa: BLE001  (any fixer may fail; then the syntax error is reported)
        return None
    return Conversion(converted, changes, _divides(tree) and not _TRUE_DIVISION.search(text))


def _tool(changes: Counter[str]) -> Any:  # noqa: ANN401  (fissix has no types)
    """Return a converter with the fixers; it counts the changes of each fixer."""
    # Imported here because few programs need it. It would write its grammar to the user's cache.
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
    """Make a fixer count its changes: it returns a new node, or changes the tree itself."""
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
