"""Find and check a user's own program, and copy it into the run with the files that it needs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lab.base.errors import InputError
from lab.base.files import user_path
from lab.base.formatting import counted
from lab.programs import FOR_A_TASK, SUFFIX, TASK, needs
from lab.programs.data_files import DataFiles, find_data_files
from lab.programs.imports import first_imports
from lab.programs.python_source import Conversion, Sources, imported_packages
from lab.protocol.frameworks import FRAMEWORKS, TENSORFLOW, framework_of
from lab.protocol.volume import RunSpec
from lab.protocol.volume.run_spec import PLAIN, has_placeholders, module_files

MAX_FILES: Final = 1000
MAX_BYTES: Final = 64 << 20
"""The limits for a program's modules. A larger directory is probably the user's home directory."""

_NEXT_TASK: Final = re.compile(rf",(?={TASK}=)")

_ONE_WORKER: Final[Mapping[str, int]] = {"worker": 1}


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
        framework: The framework that its imports show, a key of
            `lab.protocol.frameworks.FRAMEWORKS`.
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
    described, tasks = has_placeholders(argv), sum(jobs.values())
    is_old = listing or use is not None
    several = {task: str(file) for task, file in own.items() if task}
    program, name = (argument, argument.replace(".", "-")) if module else _shown(own)
    is_alone = tasks == 1 or bool(several) or described
    packages, trees = imported_packages(sources.trees), [*sources.trees.values()]
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
        gpu_use=needs.gpu_use(sources.trees),
        horovod=is_tensorflow and "horovod" in packages,
        estimator=needs.uses_estimator(trees),
        coordinator=needs.has_coordinator(sources.trees),
        need=needs.needed_tf1(sources.trees, tasks, tensorflow_1=is_old) if is_tensorflow else None,
        single=tasks == 1,
        knows_job=described or needs.knows_its_job(trees),
        notice="" if is_alone else needs.fixed_hosts_notice(program, trees, nodes),
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
