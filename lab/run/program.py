"""A program of one's own: found, checked, and copied into the run with what it needs."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.run.data_files import find_data_files
from lab.run.python2 import Conversion, convert
from lab.task.protocol import CLUSTER_FLAGS, Entry

SUFFIX: Final = ".py"
MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 << 20
"""More than this beside a program is no program, but somebody's home directory."""

_TASK: Final = r"[a-z]+-(?:0|[1-9][0-9]{0,4})"
_FOR_A_TASK: Final = re.compile(rf"({_TASK})=(.*)", re.DOTALL)
_NEXT_TASK: Final = re.compile(rf",(?={_TASK}=)")

_DECLARING: Final = ("add_argument", "option")
_DEFINE: Final = "DEFINE_"
_OWN_FLAGS: Final = "lab.task"
"""A program that imports it may use its parser, which knows every flag of the cluster."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """A program that is no experiment of the registry, or one for each task.

    Attributes:
        folder: The directory in which it lies, with the modules beside it.
        program: Its file's name; of several, each behind its task: `worker-0=a.py,worker-1=b.py`.
        name: The file's name without `.py`; of several, all names with hyphens between them.
        files: It and the modules beside it, relative to its directory.
        cluster_flags: Those flags of the cluster that it can be started with.
        programs: Task to its program, where each task has its own; else empty.
        data: Data files that a listing names, relative to its directory.
        converted: File to what it became, where a listing is written in Python 2.
        listing: Whether it is run as it was printed, with TensorFlow 1's API.
        faithful: Whether a listing's polls of 30 seconds stay as they were.
        mend: Whether the known faults of printed synchronous programs are mended.
    """

    folder: Path
    program: str
    name: str
    files: tuple[Path, ...]
    cluster_flags: tuple[str, ...]
    programs: Mapping[str, Entry] = field(default_factory=dict)
    data: tuple[Path, ...] = ()
    converted: Mapping[Path, Conversion] = field(default_factory=dict)
    listing: bool = False
    faithful: bool = False
    mend: bool = False

    def copy_to(self, program: Path, data: Path, original: Path) -> None:
        """Copy it; a directory is made where something goes into it.

        Args:
            program: Receives the program and its modules as they run.
            data: Receives the data files.
            original: Receives what was converted, as it was.
        """
        for file in self.files:
            conversion = self.converted.get(file)
            if conversion is None:
                self._copy(file, program)
            else:
                self._copy(file, original)
                (program / file).parent.mkdir(parents=True, exist_ok=True)
                (program / file).write_bytes(conversion.source)
        for file in self.data:
            self._copy(file, data)

    def _copy(self, file: Path, to: Path) -> None:
        target = to / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.folder / file, target)

    def notes(self) -> Iterator[str]:
        """A line for each file that was converted."""
        for file, conversion in self.converted.items():
            yield f"{file}: converted from Python 2: {conversion}"


def names_a_program(word: str) -> bool:
    """Whether a word on the command line is a program's path, and no experiment's name."""
    return word.endswith(SUFFIX) or "/" in word or _FOR_A_TASK.match(word) is not None


def user_path(word: str) -> Path:
    """A path as a user types it: `~` is the home directory, as far as there is such a user."""
    return Path(os.path.expanduser(word))  # noqa: PTH111  (pathlib raises where there is none)


def read_program(word: str, *, listing: bool = False, argv: Sequence[str] = ()) -> OwnProgram:
    """Find a program, or one for each task, and check it before anything starts.

    Args:
        word: Its path; of several, `worker-0=a.py,worker-1=b.py`.
        listing: Whether it is to run as it was printed: with its data files, and converted where
            it is written in Python 2.
        argv: The arguments for it, which may name data files.

    Raises:
        InputError: It is missing, unreadable, not Python, or it or a module beside it that it
            imports has a syntax error; a data file cannot be copied.
    """
    paths = _paths(word)
    converted: dict[Path, Conversion] = {}
    trees: dict[Path, ast.Module] = {}
    for path in paths.values():
        if path.suffix != SUFFIX:
            raise InputError(f"{path} is no Python program", f"name a file that ends in {SUFFIX}")
        trees.update(check_syntax(path, converted if listing else None))
    first = next(iter(paths.values()))
    flags = {path: cluster_flags(trees[Path(path.name)]) for path in paths.values()}
    own = [Path(path.name) for path in paths.values()]
    beside = _beside(first.parent, trees)
    several = {task: Entry(path.name, flags[path]) for task, path in paths.items() if task}
    return OwnProgram(
        folder=first.parent,
        program=",".join(f"{task}={each.program}" for task, each in several.items()) or first.name,
        name="-".join(dict.fromkeys(path.stem for path in paths.values())),
        files=tuple(dict.fromkeys((*own, *beside))),
        cluster_flags=flags[first],
        programs=several,
        data=find_data_files(first.parent, trees.values(), argv) if listing else (),
        converted=converted,
        listing=listing,
    )


def _paths(word: str) -> dict[str, Path]:
    """Task to the path of its program; the task is "" where all have the same.

    Raises:
        InputError: The word does not fit, or the programs lie in several directories.
    """
    if not _FOR_A_TASK.match(word):
        return {"": user_path(word)}
    found: dict[str, Path] = {}
    for part in _NEXT_TASK.split(word):
        task, _, name = part.partition("=")
        if not name:
            raise InputError(f"{task}= names no program", f"write {task}=FILE{SUFFIX}")
        if task in found:
            raise InputError(f"{task} has two programs", "give it one")
        found[task] = user_path(name)
    (task, first), *others = found.items()
    for other, path in others:
        # As typed: through links, modules beside the one would not be beside the other.
        if path.parent != first.parent:
            raise InputError(
                f"the programs of {task} and {other} lie in two directories, {first.parent} and"
                f" {path.parent}",
                "put them into one, with the modules and data files that they need",
            )
    return found


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
        mend = "check its path"
        if "=" in str(path):
            mend += f"; a task's own program is written worker-0=FILE{SUFFIX}"
        raise InputError(f"no program {path}", mend) from None
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


def _beside(folder: Path, imported: Iterable[Path]) -> list[Path]:
    """Modules and packages in a directory, relative to it; never through links to directories.

    A package is a directory with an `__init__.py`, or one that the program imports from.
    """
    found = [path.relative_to(folder) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    packages = {path.parent for path in folder.glob("*/__init__.py")}
    packages |= {folder / file.parts[0] for file in imported if len(file.parts) > 1}
    for package in sorted(packages):
        if not package.is_symlink() and package.name.isidentifier():
            found += [path.relative_to(folder) for path in sorted(package.rglob("*.py"))]
    found = [file for file in found if (folder / file).is_file()]
    size = sum((folder / file).stat().st_size for file in found)
    if len(found) > MAX_FILES or size > MAX_BYTES:
        raise InputError(
            f"{folder} holds {len(found):,} Python files ({size >> 20:,} MiB)",
            "give the program a directory of its own with the modules that it needs",
        )
    return found
