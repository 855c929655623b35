"""Reads a config file, or reports all its problems; and writes a config as text."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from lab.config.diagnostics import Problem, describe, report, to_problems
from lab.config.model import Box, Cluster, Job, LinkConfig, Node, PartialCluster, RunConfig
from lab.config.validation import WORKER, validate
from lab.config.yaml_reader import MAX_BYTES, ParsedFile, read_source
from lab.errors import ConfigError, InputError
from lab.formatting import counted
from lab.text import short
from lab.units import DELAY, MEMORY, RATE, exact

Config = TypeVar("Config", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Format(Generic[Config]):
    """A kind of config file.

    Attributes:
        noun: What such a file describes: `cluster`.
        model: The model of the whole file.
        partial: The model of the valid parts of a file with errors.
        models: The model of each mapping, by its path: "" for the whole file. The path of a key
            also stands for the entries below it.
        rules: Yields a problem for every rule that a `model` or a `partial` breaks.
        fix: How to name another file, as an instruction.
    """

    noun: str
    model: type[Config]
    partial: type[BaseModel]
    models: Mapping[str, type[BaseModel]]
    rules: Callable[[Any], Iterator[Problem]]
    fix: str


CLUSTER: Final = Format(
    noun="cluster",
    model=Cluster,
    partial=PartialCluster,
    models={
        "": Cluster,
        "box": Box,
        "nodes": Node,
        "jobs": Job,
        "links": LinkConfig,
        "run": RunConfig,
    },
    rules=validate,
    fix="name a config with `--cluster FILE`, such as clusters/book.yaml",
)


def load_cluster(path: Path, fix: str = CLUSTER.fix) -> Cluster:
    """Read a cluster config.

    Args:
        path: The file.
        fix: How to name another file, for the error.

    Returns:
        The valid config.

    Raises:
        InputError: There is no such file, or it cannot be read.
        ConfigError: The config is invalid; the error lists all its problems.
    """
    return parse_config(CLUSTER, read_file(path, fix), str(path))


def parse_cluster(data: bytes, file: str) -> Cluster:
    """Read a cluster config from bytes.

    Args:
        data: The file's content.
        file: Its name, for messages.

    Raises:
        ConfigError: The config is invalid; the error lists all its problems.
    """
    return parse_config(CLUSTER, data, file)


def parse_config(kind: Format[Config], data: bytes, file: str) -> Config:
    """Read a config of any kind from bytes.

    Args:
        kind: The kind of the file.
        data: The file's content.
        file: Its name, for messages.

    Raises:
        ConfigError: The config is invalid; the error lists all its problems.
    """
    source = read_source(data, kind.noun)
    problems = list(source.problems)
    config = None
    if source.readable:
        config, found = _content(kind, source)
        problems += found
    if config is None or problems:
        raise ConfigError(report(file, problems, source.value_locations, source.key_locations))
    return config


def _content(kind: Format[Config], source: ParsedFile) -> tuple[Config | None, list[Problem]]:
    raw = source.value
    if not isinstance(raw, dict):
        if () in source.already_reported:
            return None, []
        message = f"must be a mapping (`version: 1`, …), not {describe(raw)}"
        return None, [Problem((), message)]
    try:
        config = kind.model.model_validate(raw)
    except ValidationError as error:
        problems = [
            problem
            for problem in to_problems(error, raw, kind.models)
            if problem.path not in source.already_reported
        ]
        return None, problems + list(kind.rules(kind.partial.model_validate(raw)))
    return config, list(kind.rules(config))


def read_file(path: Path, fix: str) -> bytes:
    """Return the content of a config file, and one byte more than `MAX_BYTES` at most.

    Args:
        path: The file.
        fix: How to name another file, for the error.

    Raises:
        InputError: There is no such file, or it cannot be read.
    """
    name = short(str(path))
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


def with_workers(cluster: Cluster, count: int) -> Cluster:
    """Return the cluster with another number of workers, round-robin on the same nodes.

    Args:
        cluster: A valid config with the job `worker`.
        count: The number of workers, 1 or more.

    Raises:
        InputError: It has no such job, or the number does not fit.
    """
    job = cluster.jobs.get(WORKER)
    if job is None:
        raise InputError(f"{cluster.name!r} has no job {WORKER!r}", "leave out workers")
    nodes = tuple(islice(cycle(job.on), count))
    jobs = {**cluster.jobs, WORKER: job.model_copy(update={"on": nodes})}
    # Validated again: a copy would keep the old digest.
    parts = {name: getattr(cluster, name) for name in Cluster.model_fields}
    changed = Cluster.model_validate({**parts, "jobs": jobs})
    problem = next(validate(changed), None)
    if problem is not None:
        raise InputError(
            f"{cluster.name!r} cannot have {counted(count, 'worker')}: {problem.text()}",
            "use fewer, or change the config",
        )
    return changed


_AMOUNTS: Final = {"memory": MEMORY, "rate": RATE, "delay": DELAY}


def text_of(cluster: Cluster) -> str:
    """Return the text of a config, without the parts that belong to a run.

    `parse_cluster` reads the same nodes, jobs and links from it. Only an amount of memory that is
    no whole number of KiB is rounded.
    """
    content = cluster.model_dump(
        mode="json", exclude_defaults=True, exclude={"run", "start", "faults"}
    )
    for part in (content.get("box", {}), *_values(content, "nodes"), *_values(content, "links")):
        for key, units in _AMOUNTS.items():
            if key in part:
                part[key] = exact(part[key], units)
    return json.dumps(content, ensure_ascii=False)


def _values(content: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return list(content.get(key, {}).values())
