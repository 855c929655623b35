"""From a file to a description, or to everything that is wrong with it."""

from __future__ import annotations

import stat
from pathlib import Path

from pydantic import ValidationError

from lab.config.diagnostics import Problem, describe, report
from lab.config.messages import to_problems
from lab.config.model import Cluster, PartialCluster
from lab.config.validation import validate
from lab.config.yaml_reader import MAX_BYTES, ParsedFile, read_source
from lab.errors import ConfigError, InputError
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
        raise ConfigError(report(file, problems, source.value_locations, source.key_locations))
    return cluster


def _content(source: ParsedFile) -> tuple[Cluster | None, list[Problem]]:
    raw = source.value
    if not isinstance(raw, dict):
        if () in source.already_reported:
            return None, []
        message = f"a description is a mapping (`version: 1`, …), not {describe(raw)}"
        return None, [Problem((), message)]
    try:
        cluster = Cluster.model_validate(raw)
    except ValidationError as error:
        problems = [
            problem
            for problem in to_problems(error, raw)
            if problem.path not in source.already_reported
        ]
        return None, problems + list(validate(PartialCluster.model_validate(raw)))
    return cluster, list(validate(cluster))


def _read(path: Path) -> bytes:
    name = short(str(path))
    fix = "name a description with `--cluster FILE`, such as clusters/book.yaml"
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{name} is a directory", fix)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{name} is no ordinary file", fix)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"there is no file {name}", fix) from None
    except PermissionError:
        raise InputError(f"{name} may not be read", "give yourself permission to read it") from None
    except (OSError, ValueError) as error:
        # ValueError: a name with a NUL character.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{name} cannot be read ({reason})", fix) from None
