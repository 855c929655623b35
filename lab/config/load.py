"""From a file to a description, or to everything that is wrong with it."""

from __future__ import annotations

import stat
from pathlib import Path

from pydantic import ValidationError

from lab.config.diagnostics import Problem, described, report
from lab.config.messages import explain
from lab.config.model import Cluster, Parts
from lab.config.validation import check
from lab.config.yaml_reader import MAX_BYTES, Source, read_source
from lab.errors import DescriptionError, InputError
from lab.task.text import short


def load_cluster(path: Path) -> Cluster:
    """Read a cluster description.

    Args:
        path: The file.

    Returns:
        The description, with every rule kept.

    Raises:
        InputError: There is no such file, or it cannot be read.
        DescriptionError: It has faults; all of them are reported.
    """
    return parse_cluster(_read(path), str(path))


def parse_cluster(data: bytes, file: str) -> Cluster:
    """Read a cluster description from bytes.

    Args:
        data: The file's content.
        file: Its name, for messages.

    Raises:
        DescriptionError: It has faults; all of them are reported.
    """
    source = read_source(data)
    problems = list(source.problems)
    cluster = None
    if source.readable:
        cluster, found = _content(source)
        problems += found
    if cluster is None or problems:
        raise DescriptionError(report(file, problems, source.values, source.keys))
    return cluster


def _content(source: Source) -> tuple[Cluster | None, list[Problem]]:
    raw = source.value
    if not isinstance(raw, dict):
        if () in source.excused:
            return None, []
        message = f"a description is a mapping (`version: 1`, …), not {described(raw)}"
        return None, [Problem((), message)]
    try:
        cluster = Cluster.model_validate(raw)
    except ValidationError as error:
        problems = [problem for problem in explain(error, raw) if problem.loc not in source.excused]
        return None, problems + list(check(Parts.model_validate(raw)))
    return cluster, list(check(cluster))


def _read(path: Path) -> bytes:
    name = short(str(path))
    mend = "name a description with `--cluster FILE`, such as clusters/book.yaml"
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{name} is a directory", mend)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{name} is no ordinary file", mend)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"there is no file {name}", mend) from None
    except PermissionError:
        raise InputError(f"{name} may not be read", "give yourself permission to read it") from None
    except (OSError, ValueError) as error:
        # ValueError: a name with a NUL character.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{name} cannot be read ({reason})", mend) from None
