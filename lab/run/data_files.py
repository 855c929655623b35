"""Data files beside a listing: found by the names that its text holds."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.task.text import short

MAX_BYTES: Final = 64 << 20
"""What all data files of a run may have together."""

_NO_DATA: Final = frozenset({".py", ".pyc"})


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
    names |= {part for word in argv for part in (word, word.partition("=")[2])}
    files = sorted({Path(name) for name in names if _is_data(folder, Path(name))})
    _check(folder, files)
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


def _check(folder: Path, files: Sequence[Path]) -> None:
    sizes = {file: (folder / file).stat().st_size for file in files}
    for file in files:
        if not os.access(folder / file, os.R_OK):
            what = f"the data file {short(str(folder / file))} cannot be read"
            raise InputError(what, "change its permissions")
    if sum(sizes.values()) <= MAX_BYTES:
        return
    largest = max(files, key=lambda file: sizes[file])
    raise InputError(
        f"the data file {short(str(folder / largest))} has {sizes[largest] / (1 << 20):,.0f} MiB;"
        f" the data files beside a program may have {MAX_BYTES >> 20} MiB together",
        "move it to another directory and give the program its absolute path; containers see only"
        " the project's data/, as /lab/data",
    )
