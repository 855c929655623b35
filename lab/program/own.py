"""Find and check a user's own program, and copy it into the run with the files that it needs."""

from __future__ import annotations

import ast
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.files import user_path
from lab.formatting import counted
from lab.frameworks import FRAMEWORKS, TENSORFLOW, framework_of
from lab.program import FOR_A_TASK, SUFFIX, TASK, needs
from lab.program.imports import first_imports
from lab.program.python_source import Conversion, Sources, imported_packages, names_in, texts_in
from lab.text import short
from lab.volume import RunSpec
from lab.volume.run_spec import PLAIN, has_placeholders, module_files

MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 << 20
"""The limits for a program's modules. A larger directory is probably the user's home directory."""

_NEXT_TASK: Final = re.compile(rf",(?={TASK}=)")

_ONE_WORKER: Final[Mapping[str, int]] = {"worker": 1}

MAX_DATA_BYTES: Final = 64 << 20
"""The limit for all data files of a run together."""

MAX_DIRECTORY_FILES: Final = 10_000
"""The limit for the files of a directory."""

_CODE: Final = frozenset({".py", ".pyc"})
"""What is no data in a directory; a Python file counts only by its own name."""

_WRITTEN: Final = re.compile(r"checkpoint|events\.out\.tfevents\..*|.*\.ckpt\b.*|run\.json")
"""Files that an earlier run has written; a program that finds them continues from them."""

_BESIDE: Final = frozenset({"__file__", "__path__", "pkgutil", "resources", "pkg_resources"})
"""Names by which a program finds files beside its source, not in its working directory."""

_FIX: Final = (
    "give the program its absolute path; containers see only the project's data/, as /lab/data"
)


@dataclass(frozen=True, slots=True)
class DataFiles:
    """The data files of a program.

    Attributes:
        files: Paths relative to the program's directory, in the order of their names.
        beside: Whether the program may look for them beside its source.
        notes: A line for each directory that is not copied.
    """

    files: tuple[Path, ...] = ()
    beside: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """The user's own program, or one program for each task.

    Attributes:
        folder: The directory of the program and its modules.
        program: The file's name, or the module's; for several programs:
            `worker-0=a.py,worker-1=b.py`.
        name: The file's name without `.py`; for several programs, all names joined by hyphens.
        files: The program and the modules in its directory, relative to the directory.
        programs: Task to program if each task has its own; else empty.
        data: Data files that it names.
        tensorflow_1: What shows that it is for TensorFlow 1; None if the user said so, or if it
            is for another version.
        converted: File to conversion, for the files of a listing in Python 2.
        framework: The framework that its imports show, a key of `lab.frameworks.FRAMEWORKS`.
        trains: Whether a file that runs imports a framework.
        imports: What it imports whatever happens, such as `horovod.torch`.
        gpu_use: Its calls that fail without a GPU.
        horovod: Whether a file that runs imports Horovod, which is for TensorFlow.
        estimator: Whether a file that runs uses Estimator.
        coordinator: Whether its chief assigns all steps, and its workers only serve.
        need: Why it needs the older TensorFlow version; None if it does not.
        single: Whether the config has one task.
        knows_job: Whether it may learn the job of its task: by a flag or a variable.
        notice: The notice that its tasks do not find each other; "" if they may.
    """

    folder: Path
    program: str
    name: str
    files: tuple[Path, ...]
    programs: Mapping[str, str] = field(default_factory=dict)
    data: DataFiles = field(default_factory=DataFiles)
    tensorflow_1: needs.Use | None = None
    converted: Mapping[Path, Conversion] = field(default_factory=dict)
    framework: str = TENSORFLOW.name
    trains: bool = False
    imports: Sequence[str] = ()
    gpu_use: Sequence[needs.Use] = ()
    horovod: bool = False
    estimator: bool = False
    coordinator: bool = False
    need: needs.Need | None = None
    single: bool = False
    knows_job: bool = False
    notice: str = ""

    def complete(self, spec: RunSpec) -> RunSpec:
        """Return the specification with the tasks' programs, and with what this one needs."""
        return replace(
            spec,
            own=True,
            folder="" if self.folder == Path() else str(self.folder),
            listing=spec.listing or ("" if self.tensorflow_1 is None else PLAIN),
            ready_s=0.0,  # it may never report that it is ready
            programs=self.programs,
            # With TF_CONFIG an Estimator expects TensorFlow's own cluster, with a chief.
            tf_config=not (self.estimator and (spec.horovod or self.single)),
        )

    def copy_to(self, program: Path, data: Path, original: Path) -> None:
        """Copy the program; directories that stay empty are not created.

        Args:
            program: Receives the program and its modules, converted if necessary.
            data: Receives the data files.
            original: Receives the converted files in their original form.
        """
        copies = [(file, original if file in self.converted else program) for file in self.files]
        copies += [(file, data) for file in self.data.files]
        beside = [file for file in self.data.files if self.data.beside or file.suffix == SUFFIX]
        copies += [(file, program) for file in beside]
        for file, to in copies:
            (to / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / file, to / file)
        for file, conversion in self.converted.items():
            (program / file).parent.mkdir(parents=True, exist_ok=True)
            (program / file).write_bytes(conversion.source)

    def place_of(self, use: needs.Use) -> str:
        """Return what is used, and where."""
        place = "" if str(use.file) == self.program else f" of {use.file}"
        return f"{use.what}, line {use.line}{place}"

    def notes(self) -> Iterator[str]:
        """Yield what is done to the program, a line each."""
        if self.tensorflow_1 is not None:
            use = self.place_of(self.tensorflow_1)
            yield f"{self.program} uses TensorFlow 1 ({use}): it runs as with --listing"
        yield from self.data.notes
        for file, conversion in self.converted.items():
            yield f"{file}: {conversion}"


def read_program(
    argument: str,
    *,
    module: bool = False,
    listing: bool = False,
    argv: Sequence[str] = (),
    jobs: Mapping[str, int] = _ONE_WORKER,
    nodes: Collection[str] = (),
) -> OwnProgram:
    """Find a program, or one for each task, and check it before anything starts.

    Args:
        argument: The program's path; for several programs, `worker-0=a.py,worker-1=b.py`; with
            `module`, a name: `trainer.task`.
        module: Whether it is started as by `python -m`, in the current directory.
        listing: Whether it is a printed program; otherwise its source decides.
        argv: The program's arguments, which may name data files.
        jobs: Job to its number of tasks, of the config.
        nodes: The config's nodes.

    Raises:
        InputError: The program is missing, unreadable or not Python; the program, or a module of
            its directory that it imports, has a syntax error; or a data file cannot be copied.
    """
    folder, own = _find_module(argument) if module else _find_files(argument)
    sources = Sources()
    for file in own.values():
        sources.read(folder, file)
    use = _convert(sources, folder, listing=listing)
    modules = _modules(folder, sources.trees)
    described = has_placeholders(argv)
    several = {task: str(file) for task, file in own.items() if task}
    program, name = (argument, argument.replace(".", "-")) if module else _shown(own)
    packages, trees = imported_packages(sources.trees), [*sources.trees.values()]
    notice = "" if several or described else needs.fixed_hosts_notice(program, trees, jobs, nodes)
    framework = framework_of(packages)
    is_tensorflow = framework is TENSORFLOW
    return OwnProgram(
        folder=folder,
        program=program,
        name=name,
        files=tuple(dict.fromkeys((*own.values(), *modules))),
        programs=several,
        data=find_data_files(folder, sources.trees, argv),
        tensorflow_1=use,
        converted=sources.converted,
        framework=framework.name,
        trains=any(not packages.isdisjoint(known.modules) for known in FRAMEWORKS.values()),
        # The trees of converted files have names of Python 2.
        imports=() if sources.converted else first_imports(folder, sources.trees, own.values()),
        gpu_use=() if is_tensorflow else needs.gpu_use(sources.trees),
        horovod=is_tensorflow and "horovod" in packages,
        estimator=needs.uses_estimator(trees),
        coordinator=needs.has_coordinator(sources.trees),
        need=(
            needs.needed_tf1(
                sources.trees, sum(jobs.values()), tensorflow_1=listing or use is not None
            )
            if is_tensorflow
            else None
        ),
        single=sum(jobs.values()) == 1,
        knows_job=described or needs.knows_its_job(trees),
        notice=notice,
    )


def _find_module(name: str) -> tuple[Path, dict[str, Path]]:
    """Return the current directory, and the file of a module in it.

    Raises:
        InputError: It is not the name of a module, or there is no such module.
    """
    if not all(part.isidentifier() for part in name.split(".")):
        dotted = name.removesuffix(SUFFIX).replace("/", ".")
        fix = f"write {dotted}" if dotted != name else "write it as trainer.task"
        raise InputError(f"-m: {name} is not the name of a module", fix)
    files = module_files(name)
    for file in files:
        if Path(file).is_file():
            return Path(), {"": Path(file)}
    raise InputError(
        f"no module {name}: {Path.cwd()} has neither {' nor '.join(reversed(files))}",
        "start `lab run -m` in the directory that contains the program's packages",
    )


def _find_files(argument: str) -> tuple[Path, dict[str, Path]]:
    """Return the directory of programs, and each task's program, relative to it.

    The task is "" if all have the same program.

    Raises:
        InputError: The argument is invalid, or the programs are in several directories.
    """
    parts = _NEXT_TASK.split(argument) if FOR_A_TASK.match(argument) else [f"={argument}"]
    found: dict[str, Path] = {}
    for task, _, name in (part.partition("=") for part in parts):
        if not name:
            raise InputError(f"{task}= has no program", f"write {task}=FILE{SUFFIX}")
        if task in found:
            raise InputError(f"{task} has two programs", "give it only one")
        found[task] = path = user_path(name)
        if path.suffix != SUFFIX:
            raise InputError(
                f"{path} is not a Python program", f"name a file that ends in {SUFFIX}"
            )
    (task, first), *others = found.items()
    for other, path in others:
        # Compare the paths as typed: behind links, the programs may have different modules.
        if path.parent != first.parent:
            raise InputError(
                f"the programs of {task} and {other} are in two directories, {first.parent} and"
                f" {path.parent}",
                "put them into one directory, with the modules and data files that they need",
            )
    return first.parent, {task: Path(path.name) for task, path in found.items()}


def _shown(own: Mapping[str, Path]) -> tuple[str, str]:
    """Return the attributes `program` and `name` of programs, by task as in `_find_files`."""
    name = "-".join(dict.fromkeys(file.stem for file in own.values()))
    return ",".join(f"{task}={file}" if task else str(file) for task, file in own.items()), name


def _convert(sources: Sources, folder: Path, *, listing: bool) -> needs.Use | None:
    """Convert a printed program from Python 2; return what shows that it is one, as the attribute.

    Raises:
        InputError: A program that is not printed is in Python 2.
    """
    use = None
    if not listing:
        lines = {file: each.line for file, each in sources.converted.items()}
        use = needs.tensorflow_1_use(sources.trees, lines)
    if listing or use is not None:
        sources.convert_names(folder)
    else:
        sources.refuse_python_2()
    return use


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


# ---- data files


def find_data_files(
    folder: Path, programs: Mapping[Path, ast.Module], argv: Sequence[str]
) -> DataFiles:
    """Find the data files of a program.

    A data file is in the program's directory or in that of one of its modules, and a text of the
    program or an argument is its path. If a text begins with a subdirectory, as `"data/%d.csv"`
    and `os.path.join("data", name)` do, the whole subdirectory counts, unless an earlier run has
    written into it. A Python file is a data file if its own name is in the text: the program may
    execute it. Hidden files and files behind a link to a directory are left out. A link to a file
    is followed.

    Args:
        folder: The program's directory.
        programs: The program and the modules of its directory that it imports.
        argv: The program's arguments: `data.csv`, `--input=data.csv`, or `@arguments.txt`.

    Raises:
        InputError: A file that is named cannot be read, or these files are too large together.
    """
    arguments = {part for word in argv for part in (word, re.split("=|^@", word, maxsplit=1)[-1])}
    files, directories = set[Path](), set[Path]()
    for program, tree in programs.items():
        for text in texts_in([tree]) | arguments:
            for base in {Path(), program.parent}:
                beginning = base.joinpath(*Path(text).parts[:1])
                if _has_kind(folder, base / text, Path.is_file):
                    files.add(base / text)
                elif beginning != base and _is_directory(folder, beginning):
                    directories.add(beginning)
    sizes = {file: (folder / file).stat().st_size for file in sorted(files)}
    _check(folder, sizes)
    notes = []
    for directory in sorted(directories):
        below = _sizes_below(folder, directory)
        total = sum(sizes.values()) + sum(below.values())
        if total > MAX_DATA_BYTES or len(below) > MAX_DIRECTORY_FILES:
            notes.append(
                f"{directory}/ is not copied into the run: it has more than"
                f" {MAX_DATA_BYTES >> 20} MiB or {counted(MAX_DIRECTORY_FILES, 'file')}; {_FIX}"
            )
        else:
            sizes |= below
    beside = not _BESIDE.isdisjoint(names_in(programs.values()))
    return DataFiles(tuple(sorted(sizes)), beside, tuple(notes))


def _is_inside(folder: Path, path: Path) -> bool:
    """Whether a relative path is visible, and in the directory itself, not behind a link."""
    if path.is_absolute() or not path.parts or any(part.startswith(".") for part in path.parts):
        return False
    return (folder / path.parent).resolve() == folder.resolve() / path.parent


def _is_directory(folder: Path, path: Path) -> bool:
    return _has_kind(folder, path, Path.is_dir) and not (folder / path).is_symlink()


def _has_kind(folder: Path, path: Path, is_kind: Callable[[Path], bool]) -> bool:
    try:
        return is_kind(folder / path) and _is_inside(folder, path)
    except (OSError, ValueError):  # the text is too long for a file name, or invalid as one
        return False


def _sizes_below(folder: Path, directory: Path) -> dict[Path, int]:
    """Return the data files of a directory with their sizes; none if a run has written into it."""
    sizes = dict[Path, int]()
    for place, directories, names in os.walk(folder / directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        if any(map(_WRITTEN.fullmatch, names)) or "pyvenv.cfg" in names:
            return {}
        for path in (Path(place, name) for name in sorted(names)):
            file = path.relative_to(folder)
            is_data = file.suffix not in _CODE and _has_kind(folder, file, Path.is_file)
            if is_data and os.access(path, os.R_OK):
                sizes[file] = path.stat().st_size
        if len(sizes) > MAX_DIRECTORY_FILES:
            break
    return sizes


def _check(folder: Path, sizes: Mapping[Path, int]) -> None:
    for file in sizes:
        if not os.access(folder / file, os.R_OK):
            what = f"the data file {short(str(folder / file))} cannot be read"
            raise InputError(what, "change its permissions")
    if sum(sizes.values()) <= MAX_DATA_BYTES:
        return
    largest = max(sizes, key=lambda file: sizes[file])
    raise InputError(
        f"the data file {short(str(folder / largest))} has {sizes[largest] / (1 << 20):,.0f} MiB;"
        f" all data files of a program may have {MAX_DATA_BYTES >> 20} MiB together",
        f"move it to another directory and {_FIX}",
    )
