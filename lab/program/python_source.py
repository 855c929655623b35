"""Read the sources of a program and of the modules that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.errors import InputError
from lab.program import SUFFIX

if TYPE_CHECKING:
    from lab.program.python2 import Conversion

_IMPORT_CALLS: Final = frozenset({"import_module", "__import__"})

_OF_PYTHON_2: Final = "Missing parentheses in call to"
"""The beginning of Python's message about a print statement."""


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
        from lab.program.python2 import convert_names  # noqa: PLC0415  (only own programs)

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
            from lab.program.python2 import convert  # noqa: PLC0415  (only own programs)

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


def uses_estimator(trees: Iterable[ast.Module]) -> bool:
    """Return whether a program or one of its modules uses TensorFlow's Estimator."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == "estimator")
        or (isinstance(node, ast.ImportFrom | ast.Import) and "estimator" in ast.unparse(node))
        for node in chain.from_iterable(map(ast.walk, trees))
    )


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
