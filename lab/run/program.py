"""A program of the user's own: found, checked, and copied into the run with what it needs."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.run.python_source import SUFFIX, Conversion, check_syntax, cluster_flags
from lab.task.protocol import RunSpec, TaskProgram
from lab.task.text import short

MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 << 20
"""More than this beside a program is no program, but somebody's home directory."""

_TASK: Final = r"[a-z]+-(?:0|[1-9][0-9]{0,4})"
_FOR_A_TASK: Final = re.compile(rf"({_TASK})=(.*)", re.DOTALL)
_NEXT_TASK: Final = re.compile(rf",(?={_TASK}=)")

MAX_DATA_BYTES: Final = 64 << 20
"""The limit for all data files of a run together."""

_NO_DATA: Final = frozenset({".py", ".pyc"})


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
    """

    folder: Path
    program: str
    name: str
    files: tuple[Path, ...]
    cluster_flags: tuple[str, ...]
    programs: Mapping[str, TaskProgram] = field(default_factory=dict)
    data: tuple[Path, ...] = ()
    converted: Mapping[Path, Conversion] = field(default_factory=dict)

    def complete(self, spec: RunSpec) -> RunSpec:
        """A specification with what is known of the program."""
        return replace(spec, own=True, cluster_flags=self.cluster_flags, programs=self.programs)

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


def names_a_program(argument: str) -> bool:
    """Whether a word on the command line is a program's path, and no experiment's name."""
    return argument.endswith(SUFFIX) or "/" in argument or _FOR_A_TASK.match(argument) is not None


def user_path(argument: str) -> Path:
    """A path as a user types it: `~` is the home directory, as far as there is such a user."""
    return Path(os.path.expanduser(argument))  # noqa: PTH111  (pathlib raises where there is none)


def read_program(argument: str, *, listing: bool = False, argv: Sequence[str] = ()) -> OwnProgram:
    """Find a program, or one for each task, and check it before anything starts.

    Args:
        argument: Its path; of several, `worker-0=a.py,worker-1=b.py`.
        listing: Whether it is to run as it was printed: with its data files, and converted where
            it is written in Python 2.
        argv: The arguments for it, which may name data files.

    Raises:
        InputError: It is missing, unreadable, not Python, or it or a module beside it that it
            imports has a syntax error; a data file cannot be copied.
    """
    paths = _paths(argument)
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
    several = {task: TaskProgram(path.name, flags[path]) for task, path in paths.items() if task}
    return OwnProgram(
        folder=first.parent,
        program=",".join(f"{task}={each.program}" for task, each in several.items()) or first.name,
        name="-".join(dict.fromkeys(path.stem for path in paths.values())),
        files=tuple(dict.fromkeys((*own, *beside))),
        cluster_flags=flags[first],
        programs=several,
        data=find_data_files(first.parent, trees.values(), argv) if listing else (),
        converted=converted,
    )


def _paths(argument: str) -> dict[str, Path]:
    """Task to the path of its program; the task is "" where all have the same.

    Raises:
        InputError: The word does not fit, or the programs lie in several directories.
    """
    if not _FOR_A_TASK.match(argument):
        return {"": user_path(argument)}
    found: dict[str, Path] = {}
    for part in _NEXT_TASK.split(argument):
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


def find_data_files(
    folder: Path, programs: Iterable[ast.Module], argv: Sequence[str]
) -> tuple[Path, ...]:
    """Find the data files of a listing.

    A file is one of them if a text in the program, or an argument for it, is its name: the path
    relative to the program's directory, below it. Hidden files, and all that is behind a link to a
    directory, are left out. A link to a file is followed.

    Args:
        folder: The program's directory.
        programs: The program and the modules beside it that it imports.
        argv: The arguments for the program: `data.csv`, or `--input=data.csv`.

    Returns:
        Paths relative to the directory, in the order of their names.

    Raises:
        InputError: A file cannot be read, or they are too large.
    """
    names = {
        node.value
        for program in programs
        for node in ast.walk(program)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    names |= {part for argument in argv for part in (argument, argument.partition("=")[2])}
    files = sorted({Path(name) for name in names if _is_data(folder, Path(name))})
    _check_data(folder, files)
    return tuple(files)


def _is_data(folder: Path, file: Path) -> bool:
    if file.is_absolute() or not file.parts or file.suffix in _NO_DATA:
        return False
    if any(part.startswith(".") for part in file.parts):
        return False
    try:
        if not (folder / file).is_file():
            return False
        return (folder / file.parent).resolve() == folder.resolve() / file.parent
    except (OSError, ValueError):  # a text is too long for a name, or no name at all
        return False


def _check_data(folder: Path, files: Sequence[Path]) -> None:
    sizes = {file: (folder / file).stat().st_size for file in files}
    for file in files:
        if not os.access(folder / file, os.R_OK):
            what = f"the data file {short(str(folder / file))} cannot be read"
            raise InputError(what, "change its permissions")
    if sum(sizes.values()) <= MAX_DATA_BYTES:
        return
    largest = max(files, key=lambda file: sizes[file])
    raise InputError(
        f"the data file {short(str(folder / largest))} has {sizes[largest] / (1 << 20):,.0f} MiB;"
        f" the data files beside a program may have {MAX_DATA_BYTES >> 20} MiB together",
        "move it to another directory and give the program its absolute path; containers see only"
        " the project's data/, as /lab/data",
    )
