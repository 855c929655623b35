"""Read the sources of a program and of the modules that it imports, also in Python 2."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from lab.base.errors import InputError
from lab.programs import SUFFIX

_IMPORT_CALLS: Final = frozenset({"import_module", "__import__"})

_OF_PYTHON_2: Final = "Missing parentheses in call to"
"""The beginning of Python's message about a print statement."""

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

_TRUE_DIVISION: Final = re.compile(rb"^from __future__ import .*\bdivision\b", re.MULTILINE)
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


@dataclass(frozen=True, slots=True)
class Sources:
    """A program and all modules of its directory that it imports, directly or indirectly.

    Attributes:
        trees: The syntax trees, by path relative to the directory; the program is the first.
        converted: The files converted from Python 2.
    """

    trees: dict[Path, ast.Module] = field(default_factory=dict)
    converted: dict[Path, Conversion] = field(default_factory=dict)

    def read(self, folder: Path, program: Path) -> None:
        """Add a program and its modules.

        Args:
            folder: The directory.
            program: The program, relative to the directory.

        Raises:
            InputError: A file cannot be read, or has a syntax error.
        """
        # Python executes the packages around a module before the module.
        queue = [*module_files(folder, program.parent.parts), program]
        while queue:
            file = queue.pop()
            if file not in self.trees:
                self.trees[file] = self._parse(folder, file)
                for name in imported_names(file, self.trees[file]):
                    queue += module_files(folder, name)

    def convert_names(self, folder: Path) -> None:
        """Convert names of Python 2, such as `xrange`, in files that are valid Python 3."""
        for file, tree in self.trees.items():
            if file not in self.converted:
                conversion = convert_names((folder / file).read_bytes(), tree, str(folder / file))
                if conversion is not None:
                    self.converted[file] = conversion

    def refuse_python_2(self) -> None:
        """Check that no file is in Python 2.

        Raises:
            InputError: A file is; the error is that of its syntax.
        """
        for conversion in self.converted.values():
            if conversion.error is not None:
                raise conversion.error

    def _parse(self, folder: Path, file: Path) -> ast.Module:
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
            place = f"{path}:{error.lineno or 1}:{error.offset or 1}: {error.msg}"
            in_package = len(file.parts) > 1
            conversion = convert(source, str(path), in_package=in_package)
            if conversion is None:
                python_2 = isinstance(error, TabError) or error.msg.startswith(_OF_PYTHON_2)
                why = "the conversion from Python 2 fails; " if python_2 else ""
                raise InputError(place, f"{why}fix the program") from error
            self.converted[file] = replace(
                conversion, error=InputError(place, "fix the program"), line=error.lineno or 1
            )
            return _tree(conversion.source, path)
        except (ValueError, RecursionError, MemoryError) as error:  # null bytes; too deep nesting
            what = str(error) or "too deeply nested"
            raise InputError(f"{path}: {what}", "fix the program") from error


def names_in(trees: Iterable[ast.AST]) -> set[str]:
    """Return the names of variables and attributes, and the parts of imported names."""
    found: set[str] = set()
    for node in chain.from_iterable(map(ast.walk, trees)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
    return found


def texts_in(trees: Iterable[ast.AST]) -> set[str]:
    """Return the texts that are constants."""
    # Only a constant has a text as its value.
    values = (getattr(node, "value", None) for node in chain.from_iterable(map(ast.walk, trees)))
    return {value for value in values if isinstance(value, str)}


def imported_packages(trees: Mapping[Path, ast.Module]) -> set[str]:
    """Return the packages that a program or one of its modules imports, in any place.

    The user's own modules are none of them.

    Args:
        trees: The syntax trees, by path relative to the program's directory.
    """
    own = {file.parts[0].removesuffix(SUFFIX) for file in trees}
    found = (name for file, tree in trees.items() for name in imported_names(file, tree))
    return {name[0] for name in found if name} - own


def _imported_by_call(node: ast.AST) -> str:
    """Return the module that a call of `import_module` or `__import__` names, or ""."""
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    function = getattr(node.func, "attr", "") or getattr(node.func, "id", "")
    name = getattr(node.args[0], "value", None) if function in _IMPORT_CALLS else None
    return name if isinstance(name, str) and not name.startswith(".") else ""


def _tree(source: bytes, path: Path) -> ast.Module:
    # `ast.parse` is not enough: only the compiler finds a `return` outside a function.
    compile(source, str(path), "exec", dont_inherit=True)
    return ast.parse(source, str(path))


def imported_names(file: Path, tree: ast.Module) -> Iterator[tuple[str, ...]]:
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
        elif name := _imported_by_call(node):
            yield tuple(name.split("."))


def module_files(folder: Path, name: tuple[str, ...]) -> Iterator[Path]:
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


# ---- programs in Python 2


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
    converted = _refactored(tool, source, name)
    if converted is None:
        return None
    tree = ast.parse(converted, name)
    return Conversion(converted, _divides(tree) and not _TRUE_DIVISION.search(source))


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
    converted = _refactored(_tool(_FIXERS_OF_NAMES.__contains__, print_function=True), source, name)
    if converted is None or converted == _with_line_ends(source):
        return None
    return Conversion(converted)


def _refactored(tool: Any, source: bytes, name: str) -> bytes | None:  # noqa: ANN401
    """Return a converted program, which is valid Python 3; None if that fails."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = _with_line_ends(source).decode(encoding)
        converted = str(tool.refactor_string(text, name)).encode(encoding)
        try:
            compile(converted, name, "exec", dont_inherit=True)
        except TabError:
            converted = str(tool.refactor_string(_expand_tabs(text), name)).encode(encoding)
            compile(converted, name, "exec", dont_inherit=True)
    except Exception:  # noqa: BLE001  (any fixer may fail; then the program's error is reported)
        return None
    return converted


def _with_line_ends(source: bytes) -> bytes:
    """Return a program whose lines all end in a newline, the last one, too."""
    return _LINE_END.sub(b"\n", source).removesuffix(b"\n") + b"\n"


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
    import tempfile  # noqa: PLC0415

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
