"""Find the data files beside a user's program that its source or its arguments name."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.formatting import counted
from lab.program.python_source import names_in
from lab.text import short

MAX_DATA_BYTES: Final = 64 << 20
"""The limit for all data files of a run together."""

MAX_GROUP_FILES: Final = 10_000
"""The limit for the files of a directory or of a pattern."""

_LONGEST: Final = 255
_NO_DATA: Final = frozenset({".py", ".pyc"})

_WRITTEN: Final = re.compile(r"checkpoint|events\.out\.tfevents\..*|.*\.ckpt\b.*|run\.json")
"""Files that an earlier run has written; a program that finds them continues from them."""

_BESIDE: Final = frozenset({"__file__", "__path__", "pkgutil", "resources", "pkg_resources"})
"""Names by which a program finds files beside its source, not in its working directory."""

_COMPUTED: Final = re.compile(r"%[-0 ]?\d*[dsi]|\{[^{}]*\}")

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

    A data file is in the program's directory, and its path is a text in the program, an argument,
    or several texts: `os.path.join("data", "in.csv")`. A directory that a text names counts with
    all its files, unless an earlier run has written into it. Hidden files and files behind a link
    to a directory are left out. A link to a file is followed.

    Args:
        folder: The program's directory.
        programs: The program and the modules of its directory that it imports.
        argv: The program's arguments: `data.csv`, or `--input=data.csv`.

    Raises:
        InputError: A file that is named cannot be read, or these files are too large together.
    """
    given = {part for argument in argv for part in (argument, argument.partition("=")[2])}
    beside = not _BESIDE.isdisjoint(names_in(programs.values()))
    files, groups = set[Path](), dict[str, Iterable[Path]]()
    for file, tree in programs.items():
        texts = {text for text in {*_texts(tree), *given} if 0 < len(text) <= _LONGEST}
        # A module in a package may read files of its package.
        for base in {Path(), file.parent if beside else Path()}:
            _add_named(folder, base, texts, files, groups)
    chosen = {file: (folder / file).stat().st_size for file in sorted(files)}
    _check(folder, chosen)
    notes = []
    for name, group in sorted(groups.items()):
        added = _sizes(folder, group, MAX_DATA_BYTES - sum(chosen.values()))
        if added is None:
            notes.append(
                f"{name} is not copied into the run: it has more than {MAX_DATA_BYTES >> 20} MiB"
                f" or {counted(MAX_GROUP_FILES, 'file')}; {_FIX}"
            )
        else:
            chosen |= added
    return DataFiles(tuple(sorted(chosen)), beside, tuple(notes))


def _texts(tree: ast.Module) -> Iterator[str]:
    """Yield all texts of a program; `*` stands for a computed part."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
            yield _COMPUTED.sub("*", node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else "*" for each in node.values]
            yield "".join(map(str, parts))


def _add_named(
    folder: Path,
    base: Path,
    texts: Iterable[str],
    files: set[Path],
    groups: dict[str, Iterable[Path]],
) -> None:
    """Add the files that texts name in a directory, and in the directories that they name there.

    Args:
        folder: The program's directory.
        base: A directory in it.
        texts: The texts.
        files: Receives the files.
        groups: Receives the files of directories and patterns, by their names.
    """
    queue, seen = [base], {base}
    while queue:
        directory = queue.pop()
        for text in texts:
            # Below another text, "/in.csv" is relative: `folder + "/in.csv"`.
            path = directory / (text if directory == base else text.lstrip("/"))
            if "*" in text or "?" in text:
                if found := list(_matching(folder, path)):
                    groups[str(path)] = found
            elif _is_data(folder, path):
                files.add(path)
            elif path not in seen and _is_directory(folder, path):
                seen.add(path)
                queue.append(path)
                groups[f"{path}/"] = _below(folder, path)


def _is_inside(folder: Path, path: Path) -> bool:
    """Whether a relative path is visible, and in the directory itself, not behind a link."""
    if path.is_absolute() or not path.parts or any(part.startswith(".") for part in path.parts):
        return False
    return (folder / path.parent).resolve() == folder.resolve() / path.parent


def _is_data(folder: Path, file: Path) -> bool:
    return file.suffix not in _NO_DATA and _has_kind(folder, file, Path.is_file)


def _is_directory(folder: Path, path: Path) -> bool:
    return _has_kind(folder, path, Path.is_dir) and not (folder / path).is_symlink()


def _has_kind(folder: Path, path: Path, is_kind: Callable[[Path], bool]) -> bool:
    try:
        return is_kind(folder / path) and _is_inside(folder, path)
    except (OSError, ValueError):  # the text is too long for a file name, or invalid as one
        return False


def _matching(folder: Path, pattern: Path) -> Iterator[Path]:
    """Yield the data files that a pattern matches; it must have a letter or a digit."""
    if pattern.is_absolute() or "**" in str(pattern) or not re.search(r"[^\W_]", pattern.name):
        return
    try:
        for path in sorted(folder.glob(str(pattern).replace("[", "[[]"))):
            if _is_data(folder, path.relative_to(folder)):
                yield path.relative_to(folder)
    except (OSError, ValueError):
        return


def _below(folder: Path, directory: Path) -> Iterator[Path]:
    """Yield all data files of a directory, or none if an earlier run has written into it."""
    found = []
    for place, directories, names in os.walk(folder / directory):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        if any(map(_WRITTEN.fullmatch, names)) or "pyvenv.cfg" in names:
            return
        files = (Path(place, name).relative_to(folder) for name in sorted(names))
        found += [file for file in files if _is_data(folder, file)]
        if len(found) > MAX_GROUP_FILES:
            break
    yield from found


def _sizes(folder: Path, files: Iterable[Path], most: int) -> dict[Path, int] | None:
    """Return the files with their sizes in bytes; None if they are too many or too large."""
    sizes = {}
    for file in files:
        path = folder / file
        if os.access(path, os.R_OK):
            sizes[file] = path.stat().st_size
    return sizes if sum(sizes.values()) <= most and len(sizes) <= MAX_GROUP_FILES else None


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
