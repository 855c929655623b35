"""Reads a config file, or reports all its problems."""

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
    """Read a cluster config.

    Args:
        path: The file.

    Returns:
        The valid config.

    Raises:
        InputError: There is no such file, or it cannot be read.
        ConfigError: The config is invalid; the error lists all its problems.
    """
    return parse_cluster(_read(path), str(path))


def parse_cluster(data: bytes, file: str) -> Cluster:
    """Read a cluster config from bytes.

    Args:
        data: The file's content.
        file: Its name, for messages.

    Raises:
        ConfigError: The config is invalid; the error lists all its problems.
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
        message = f"must be a mapping (`version: 1`, …), not {describe(raw)}"
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
    fix = "name a config with `--cluster FILE`, such as clusters/book.yaml"
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise InputError(f"{name} is a directory", fix)
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{name} is not a regular file", fix)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"there is no file {name}", fix) from None
    except PermissionError:
        raise InputError(
            f"{name} cannot be read (no permission)", "allow your user to read it"
        ) from None
    except (OSError, ValueError) as error:
        # ValueError: a name with a NUL character.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{name} cannot be read ({reason})", fix) from None
