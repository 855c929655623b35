"""A program of one's own: found, checked, and copied into the run with the modules beside it."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.task.protocol import CLUSTER_FLAGS

SUFFIX: Final = ".py"
MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 << 20
"""More than this beside a program is no program, but somebody's home directory."""

_DECLARING: Final = ("add_argument", "option")
_OWN_FLAGS: Final = "lab.task"
"""A program that imports it may use its parser, which knows every flag of the cluster."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A program that is no experiment of the registry.

    Attributes:
        path: Where it lies.
        files: It and the modules beside it, relative to its directory.
        cluster_flags: Those flags of the cluster that it can be started with.
    """

    path: Path
    files: tuple[Path, ...]
    cluster_flags: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its file's name without `.py`."""
        return self.path.stem

    def copy_to(self, directory: Path) -> None:
        """Copy it and its modules; the directory is made."""
        for file in self.files:
            target = directory / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path.parent / file, target)


def names_a_program(word: str) -> bool:
    """Whether a word on the command line is a program's path, and no experiment's name."""
    return word.endswith(SUFFIX) or "/" in word


def read_program(word: str) -> OwnProgram:
    """Find a program and check it, before anything starts.

    Raises:
        InputError: It is missing, unreadable, not Python, or it or a module beside it that it
            imports has a syntax error.
    """
    path = Path(word).expanduser()
    if path.suffix != SUFFIX:
        raise InputError(f"{path} is no Python program", f"name a file that ends in {SUFFIX}")
    tree = _parse(path)
    beside = _beside(path.parent)
    _check_imports(path.parent, tree, {file for file in beside if file.name != path.name})
    files = tuple(dict.fromkeys((Path(path.name), *beside)))
    return OwnProgram(path, files, cluster_flags(tree))


def cluster_flags(program: ast.Module) -> tuple[str, ...]:
    """Those flags of the cluster that a program takes, under the names that it has for them.

    A parser refuses flags that it does not know. So a program that declares flags (`argparse`,
    `tf.app.flags`, `absl.flags`, `click`) is given those of the cluster that it declares; one that
    declares none, or computes their names, is given all of them.
    """
    declared: set[str] = set()
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom | ast.Import) and _imports_our_parser(node):
            return tuple(CLUSTER_FLAGS)
        if isinstance(node, ast.Call) and _declares(node.func):
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
            names += [
                each.value.value
                for each in node.keywords
                if each.arg == "name" and isinstance(each.value, ast.Constant)
            ]
            texts = [name.lstrip("-") for name in names if isinstance(name, str)]
            if not texts:
                return tuple(CLUSTER_FLAGS)
            declared.update(texts)
    if not declared:
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
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in _DECLARING or name.startswith("DEFINE_")


def _parse(path: Path) -> ast.Module:
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"no program {path}", "check its path") from None
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror})", "check the path and its permissions"
        ) from error
    try:
        # Not by `ast.parse` alone: a `return` outside a function is found by the compiler only.
        compile(source, str(path), "exec", dont_inherit=True)
        return ast.parse(source, str(path))
    except SyntaxError as error:
        place = f"{path}:{error.lineno or 1}:{error.offset or 1}"
        raise InputError(f"{place}: {error.msg}", "mend the program") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; far too deep nesting
        what = str(error) or "too deeply nested"
        raise InputError(f"{path}: {what}", "mend the program") from error


def _check_imports(folder: Path, tree: ast.Module, beside: set[Path]) -> None:
    """Look for syntax errors in those modules beside the program that it comes to import."""
    queue, seen = [tree], set[Path]()
    while queue:
        for name in _imported(queue.pop()):
            parts = Path(*name.split("."))
            for file in (parts.with_suffix(SUFFIX), parts / "__init__.py"):
                if file in beside and file not in seen:
                    seen.add(file)
                    queue.append(_parse(folder / file))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names if each.name != "*")


def _beside(folder: Path) -> list[Path]:
    """Modules and packages in a directory, relative to it; never through links to directories."""
    found = [path.relative_to(folder) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    for package in sorted(folder.glob("*/__init__.py")):
        if not package.parent.is_symlink() and package.parent.name.isidentifier():
            found += [path.relative_to(folder) for path in sorted(package.parent.rglob("*.py"))]
    found = [file for file in found if (folder / file).is_file()]
    size = sum((folder / file).stat().st_size for file in found)
    if len(found) > MAX_FILES or size > MAX_BYTES:
        raise InputError(
            f"{folder} holds {len(found):,} Python files ({size >> 20:,} MiB)",
            "give the program a directory of its own with the modules that it needs",
        )
    return found
