"""The data files of a user's own program: those that its source or its arguments name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.base.errors import InputError
from lab.base.formatting import counted
from lab.programs.python_source import names_in, texts_in

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
            what = f"the data file {folder / file} cannot be read"
            raise InputError(what, "change its permissions")
    if sum(sizes.values()) <= MAX_DATA_BYTES:
        return
    largest = max(sizes, key=lambda file: sizes[file])
    raise InputError(
        f"the data file {folder / largest} has {sizes[largest] / (1 << 20):,.0f} MiB;"
        f" all data files of a program may have {MAX_DATA_BYTES >> 20} MiB together",
        f"move it to another directory and {_FIX}",
    )
