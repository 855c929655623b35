"""Find and check a user's own program, and copy it into the run with the files that it needs."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.formatting import counted
from lab.run.cluster_arguments import ClusterArguments, find_arguments, has_placeholders
from lab.run.cluster_notice import missing_notice
from lab.run.executed_source import imports_dynamically
from lab.run.python_source import (
    SUFFIX,
    Conversion,
    check_syntax,
    imports_horovod,
    uses_estimator,
)
from lab.task.protocol import RunSpec, TaskProgram
from lab.task.text import short

MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 << 20
"""The limits for a program's modules. A larger directory is probably the user's home directory."""

_TASK: Final = r"[a-z]+-(?:0|[1-9][0-9]{0,4})"
_FOR_A_TASK: Final = re.compile(rf"({_TASK})=(.*)", re.DOTALL)
_NEXT_TASK: Final = re.compile(rf",(?={_TASK}=)")

_ONE_WORKER: Final[Mapping[str, int]] = {"worker": 1}
_NOTHING: Final[Mapping[str, str]] = {}

MAX_DATA_BYTES: Final = 64 << 20
"""The limit for all data files of a run together."""

_NO_DATA: Final = frozenset({".py", ".pyc"})


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """The user's own program, or one program for each task.

    Attributes:
        folder: The directory of the program and its modules.
        program: The file's name; for several programs: `worker-0=a.py,worker-1=b.py`.
        name: The file's name without `.py`; for several programs, all names joined by hyphens.
        files: The program and the modules in its directory, relative to the directory.
        cluster_args: The templates of the arguments that describe the cluster to the program.
        programs: Task to program if each task has its own; else empty.
        data: Data files that a listing names, relative to the directory.
        converted: File to conversion, for the files of a listing in Python 2.
        horovod: Whether a file that runs imports Horovod.
        estimator: Whether a file that runs uses Estimator.
        notice: The notice that its tasks do not form the config's cluster; "" if they may.
    """

    folder: Path
    program: str
    name: str
    files: tuple[Path, ...]
    cluster_args: tuple[str, ...]
    programs: Mapping[str, TaskProgram] = field(default_factory=dict)
    data: tuple[Path, ...] = ()
    converted: Mapping[Path, Conversion] = field(default_factory=dict)
    horovod: bool = False
    estimator: bool = False
    notice: str = ""

    def complete(self, spec: RunSpec) -> RunSpec:
        """Return the specification with the program's cluster arguments and the tasks' programs."""
        return replace(
            spec,
            own=True,
            cluster_args=self.cluster_args,
            programs=self.programs,
            # With TF_CONFIG each rank's Estimator would expect TensorFlow's own cluster.
            tf_config=not (spec.horovod and self.estimator),
        )

    def copy_to(self, program: Path, data: Path, original: Path) -> None:
        """Copy the program; directories that stay empty are not created.

        Args:
            program: Receives the program and its modules, converted if necessary.
            data: Receives the data files.
            original: Receives the converted files in their original form.
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
        """Yield a line for each converted file."""
        for file, conversion in self.converted.items():
            yield f"{file}: converted from Python 2: {conversion}"


def names_a_program(argument: str) -> bool:
    """Whether an argument is the path of a program, not the name of an experiment."""
    return argument.endswith(SUFFIX) or "/" in argument or _FOR_A_TASK.match(argument) is not None


def user_path(argument: str) -> Path:
    """Return the path that a user typed: `~` and `~name` become home directories if they exist."""
    return Path(os.path.expanduser(argument))  # noqa: PTH111  (pathlib raises for unknown users)


def read_program(
    argument: str,
    *,
    listing: bool = False,
    argv: Sequence[str] = (),
    jobs: Mapping[str, int] = _ONE_WORKER,
    given: Mapping[str, str] = _NOTHING,
) -> OwnProgram:
    """Find a program, or one for each task, and check it before anything starts.

    Args:
        argument: The program's path; for several programs, `worker-0=a.py,worker-1=b.py`.
        listing: Whether it is a printed program: its data files are copied, and Python 2 is
            converted.
        argv: The program's arguments, which may name data files.
        jobs: Job to its number of tasks, of the config.
        given: Flag of the program to what it means, in addition to the flags that are known.

    Raises:
        InputError: The arguments have a placeholder of an unknown job, or `given` an unknown
            meaning; the program is missing, unreadable or not Python; the program, or a module of
            its directory that it imports, has a syntax error; or a data file cannot be copied.
    """
    paths = _paths(argument)
    converted: dict[Path, Conversion] = {}
    trees: dict[Path, ast.Module] = {}
    sources: dict[Path, Mapping[Path, ast.Module]] = {}
    for path in paths.values():
        if path.suffix != SUFFIX:
            raise InputError(
                f"{path} is not a Python program", f"name a file that ends in {SUFFIX}"
            )
        sources[path] = check_syntax(path, converted if listing else None)
        trees.update(sources[path])
    first = next(iter(paths.values()))
    own = [Path(path.name) for path in paths.values()]
    modules = _modules(first.parent, trees)
    described = has_placeholders(argv, jobs, given)
    sources = {path: _all_sources(first.parent, read, modules) for path, read in sources.items()}
    args = {
        path: ClusterArguments() if described else find_arguments(read, jobs, given)
        for path, read in sources.items()
    }
    several = {
        task: TaskProgram(path.name, args[path].templates) for task, path in paths.items() if task
    }
    notice = None
    if not (several or described):
        notice = missing_notice(first.name, sources[first], args[first], jobs)
    return OwnProgram(
        folder=first.parent,
        program=",".join(f"{task}={each.program}" for task, each in several.items()) or first.name,
        name="-".join(dict.fromkeys(path.stem for path in paths.values())),
        files=tuple(dict.fromkeys((*own, *modules))),
        cluster_args=args[first].templates,
        programs=several,
        data=find_data_files(first.parent, trees.values(), argv) if listing else (),
        converted=converted,
        horovod=imports_horovod(trees),
        estimator=uses_estimator(trees.values()),
        notice=notice or "",
    )


def _all_sources(
    folder: Path, read: Mapping[Path, ast.Module], modules: Iterable[Path]
) -> Mapping[Path, ast.Module]:
    """Add all copied modules if a program imports some by computed names."""
    if not imports_dynamically(read.values()):
        return read
    others: dict[Path, ast.Module] = {}
    for module in modules:
        with suppress(SyntaxError, ValueError, RecursionError, OSError):  # it may be for Python 2
            others[module] = ast.parse((folder / module).read_bytes())
    return {**read, **{module: tree for module, tree in others.items() if module not in read}}


def _paths(argument: str) -> dict[str, Path]:
    """Return the path of each task's program, by task; the task is "" if all have the same program.

    Raises:
        InputError: The argument is invalid, or the programs are in several directories.
    """
    if not _FOR_A_TASK.match(argument):
        return {"": user_path(argument)}
    found: dict[str, Path] = {}
    for part in _NEXT_TASK.split(argument):
        task, _, name = part.partition("=")
        if not name:
            raise InputError(f"{task}= has no program", f"write {task}=FILE{SUFFIX}")
        if task in found:
            raise InputError(f"{task} has two programs", "give it only one")
        found[task] = user_path(name)
    (task, first), *others = found.items()
    for other, path in others:
        # Compare the paths as typed: behind links, the programs may have different modules.
        if path.parent != first.parent:
            raise InputError(
                f"the programs of {task} and {other} are in two directories, {first.parent} and"
                f" {path.parent}",
                "put them into one directory, with the modules and data files that they need",
            )
    return found


def _modules(folder: Path, imported: Iterable[Path]) -> list[Path]:
    """Return the modules of a directory and its packages, relative to it.

    A package is a directory with an `__init__.py`, or one that the program imports from. Links to
    directories are not followed.
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
            f"{folder} has too many or too large Python files: {counted(len(found), 'file')},"
            f" {size >> 20:,} MiB",
            "put the program into its own directory, with the modules that it needs",
        )
    return found


def find_data_files(
    folder: Path, programs: Iterable[ast.Module], argv: Sequence[str]
) -> tuple[Path, ...]:
    """Find the data files of a listing.

    A data file is in the program's directory, and a text in the program or an argument is its
    relative path. Hidden files and files behind a link to a directory are left out. A link to a
    file is followed.

    Args:
        folder: The program's directory.
        programs: The program and the modules of its directory that it imports.
        argv: The program's arguments: `data.csv`, or `--input=data.csv`.

    Returns:
        Paths relative to the directory, in the order of their names.

    Raises:
        InputError: A file cannot be read, or the files are too large together.
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
    except (OSError, ValueError):  # the text is too long for a file name, or invalid as one
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
        f" all data files of a program may have {MAX_DATA_BYTES >> 20} MiB together",
        "move it to another directory and give the program its absolute path; containers see only"
        " the project's data/, as /lab/data",
    )
