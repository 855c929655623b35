"""From a file to a description, or to everything that is wrong with it."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from lab.config.diagnostics import Problem, described, report
from lab.config.messages import explain
from lab.config.model import MAX_PORT, MIN_PORT, Box, Cluster, Job, LinkSpec, Node, Training
from lab.config.validation import Parts, check
from lab.config.yaml_reader import MAX_BYTES, Source, read_source
from lab.errors import DescriptionError, InputError
from lab.task.faults import parse as parse_fault
from lab.task.text import short
from lab.task.when import parse_when

Part = TypeVar("Part", bound=BaseModel)


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
        return None, problems + list(check(_parts(raw)))
    return cluster, list(check(Parts.of(cluster)))


def _parts(raw: Mapping[str, Any]) -> Parts:
    port = raw.get("port", Cluster.model_fields["port"].default)
    port_is_read = type(port) is int and MIN_PORT <= port <= MAX_PORT
    return Parts(
        box=_read_part(Box, raw.get("box", {})),
        nodes={name: _read_part(Node, value) for name, value in _entries(raw, "nodes")},
        jobs={name: _read_part(Job, value) for name, value in _entries(raw, "jobs")},
        port=port if port_is_read else None,
        run=_read_part(Training, raw["run"]) if "run" in raw else None,
        links={
            name: link
            for name, value in _entries(raw, "links")
            if (link := _read_part(LinkSpec, value)) is not None
        },
        start={name: text for name, text in _entries(raw, "start") if _reads(parse_when, text)},
        faults={
            index: text
            for index, text in enumerate(_items(raw, "faults"))
            if _reads(parse_fault, text)
        },
    )


def _entries(raw: Mapping[str, Any], key: str) -> Iterator[tuple[str, Any]]:
    value = raw.get(key)
    if isinstance(value, dict):
        yield from value.items()


def _items(raw: Mapping[str, Any], key: str) -> list[Any]:
    value = raw.get(key)
    return value if isinstance(value, list) else []


def _reads(read: Callable[[str], object], value: object) -> bool:
    try:
        return isinstance(value, str) and read(value) is not None
    except ValueError:
        return False  # the validation of the whole has reported it


def _read_part(model: type[Part], value: object) -> Part | None:
    try:
        return model.model_validate(value)
    except ValidationError:
        return None  # the validation of the whole has reported it


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
