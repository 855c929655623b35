"""Convert programs from Python 2."""

from __future__ import annotations

import ast
import io
import re
import tempfile
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.errors import InputError

_NAMES: Final = frozenset(
    {"xrange", "raw_input", "unicode", "basestring", "long", "reduce", "unichr"}
)
_MODULES: Final = frozenset(
    {"cPickle", "StringIO", "cStringIO", "urllib2", "urlparse", "Queue", "ConfigParser"}
    | {"HTMLParser", "httplib"}
)
_METHODS: Final = frozenset({"has_key", "iteritems", "iterkeys", "itervalues"})
_FIXERS_OF_NAMES: Final = frozenset(
    {"xrange", "raw_input", "unicode", "basestring", "long", "reduce", "has_key", "dict"}
    | {"imports", "urllib", "itertools", "itertools_imports"}
)
"""What is converted in a program that is valid Python 3."""

_TAB: Final = 8
"""The columns of a tab in Python 2."""

_TRUE_DIVISION: Final = re.compile(r"^from __future__ import .*\bdivision\b", re.MULTILINE)
_LINE_END: Final = re.compile(rb"\r?\n|\r")


@dataclass(frozen=True, slots=True)
class Conversion:
    """A file that was converted.

    Attributes:
        source: The text in Python 3, in the encoding of the original.
        divides: Whether the file divides by `/`. In Python 2, `/` of two integers rounds down. The
            text does not show the types, so `/` is not converted.
        error: The syntax error of the original; None if that is valid Python 3.
        line: The line of that error.
    """

    source: bytes
    divides: bool = False
    error: InputError | None = None
    line: int = 1

    def __str__(self) -> str:
        warning = "; `/` of two integers now gives a fraction"
        return "converted from Python 2" + warning * self.divides


def convert(source: bytes, name: str, *, in_package: bool = False) -> Conversion | None:
    """Convert a program from Python 2 to Python 3.

    Args:
        source: A program that is not valid Python 3.
        name: Its path, for messages.
        in_package: Whether it is a module of a package, whose imports may be relative.

    Returns:
        The conversion; None if fissix fails, or its result is not valid Python 3.
    """
    # The fixer `import` makes imports that only work inside a package.
    tool = _tool(lambda fixer: in_package or fixer != "import", print_function=False)
    try:
        text, encoding = _decoded(source)
        try:
            converted = _refactored(tool, text, encoding, name)
        except TabError:
            converted = _refactored(tool, _expand_tabs(text), encoding, name)
        tree = ast.parse(converted, name)
    except Exception:  # noqa: BLE001  (any fixer may fail; then the syntax error is reported)
        return None
    return Conversion(converted, _divides(tree) and not _TRUE_DIVISION.search(text))


def convert_names(source: bytes, tree: ast.Module, name: str) -> Conversion | None:
    """Convert names of Python 2 in a program that is valid Python 3, such as `xrange`.

    A name that the program defines itself, and an import that is not at the top level, stay.

    Args:
        source: The program.
        tree: Its syntax tree.
        name: Its path, for messages.

    Returns:
        The conversion; None if there is nothing to convert, or the result is not valid Python 3.
    """
    if not _has_old_names(tree):
        return None
    tool = _tool(_FIXERS_OF_NAMES.__contains__, print_function=True)
    try:
        text, encoding = _decoded(source)
        converted = _refactored(tool, text, encoding, name)
    except Exception:  # noqa: BLE001  (any fixer may fail; then the program reports the name)
        return None
    return None if converted == text.encode(encoding) else Conversion(converted)


def _refactored(tool: Any, text: str, encoding: str, name: str) -> bytes:  # noqa: ANN401
    """Return a converted text, which is valid Python 3; a fixer may raise any error."""
    converted = str(tool.refactor_string(text, name)).encode(encoding)
    compile(converted, name, "exec", dont_inherit=True)
    return converted


def _decoded(source: bytes) -> tuple[str, str]:
    """Return a program's text, with a line end at its end, and its encoding."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    text = _LINE_END.sub(b"\n", source).decode(encoding)
    return (text if text.endswith("\n") else f"{text}\n"), encoding


def _expand_tabs(text: str) -> str:
    """Replace the tabs of the indentation by blanks."""
    from fissix.pgen2 import tokenize as tokens  # noqa: PLC0415

    inside = set[int]()  # lines that begin in a string
    for _, _, (first, _), (last, _), _ in tokens.generate_tokens(io.StringIO(text).readline):
        inside.update(range(first + 1, last + 1))
    lines = text.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        bare = line.lstrip(" \t")
        if number not in inside:
            lines[number - 1] = line[: len(line) - len(bare)].expandtabs(_TAB) + bare
    return "".join(lines)


def _has_old_names(tree: ast.Module) -> bool:
    """Whether a program uses a name of Python 2 that it does not define itself."""
    nodes = [*ast.walk(tree)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {getattr(node, field, None) for node in nodes for field in ("name", "arg", "asname")}
    bound |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    # `six.iteritems(d)` has an argument.
    methods = {
        method
        for call in nodes
        if isinstance(call, ast.Call) and (method := getattr(call.func, "attr", ""))
        if method == "has_key" or not call.args
    }
    old = (_NAMES & {name.id for name in names}) | (_METHODS & methods)
    return "*" not in bound and (bool(old - bound) or any(map(_imports_old_module, tree.body)))


def _imports_old_module(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return not statement.level and statement.module in _MODULES
    return isinstance(statement, ast.Import) and any(
        each.name in _MODULES for each in statement.names
    )


def _tool(is_used: Callable[[str], bool], *, print_function: bool) -> Any:  # noqa: ANN401
    """Return a converter with the fixers whose names are used.

    Args:
        is_used: Whether a fixer is used.
        print_function: Whether `print` is a function in the text.
    """
    # Imported here because few programs need it. It would write its grammar to the user's cache.
    import fissix  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        fissix.CACHE_DIR = Path(folder)
        from fissix import refactor  # noqa: PLC0415

    fixers = refactor.get_fixers_from_package("fissix.fixes")
    used = [fixer for fixer in fixers if is_used(fixer.rpartition(".fix_")[2])]
    return refactor.RefactoringTool(used, {"print_function": print_function})


def _divides(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div)
        for node in ast.walk(tree)
    )
