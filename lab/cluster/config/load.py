"""Reads a config file, or reports all its problems; and writes a config as text."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from lab.base.errors import ConfigError, InputError
from lab.base.formatting import counted
from lab.base.units import DELAY, MEMORY, RATE, exact
from lab.cluster.config.cluster import OF_A_RUN, Cluster
from lab.cluster.config.diagnostics import Problem, ProblemError, report, to_problems
from lab.cluster.config.validation import WORKER, validate
from lab.cluster.config.yaml_reader import MAX_BYTES, read_source

T = TypeVar("T")
Config = TypeVar("Config", bound=BaseModel)

FIX: Final = "name a config with `--cluster FILE`, such as clusters/book.yaml"
"""How to name another file, for an error."""


def load_cluster(path: Path, fix: str = FIX) -> Cluster:
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
    return parse_cluster(read_file(path, fix), str(path))


def parse_cluster(data: bytes, file: str) -> Cluster:
    """Read a cluster config from bytes.

    Args:
        data: The file's content.
        file: Its name, for messages.

    Raises:
        ConfigError: The config is invalid; the error lists all its problems.
    """
    return parse_config(Cluster, validate, data, file)


def parse_config(
    model: type[Config], rules: Callable[[Config], Iterable[Problem]], data: bytes, file: str
) -> Config:
    """Read a config of any kind from bytes: as YAML, then by its types, then by its rules.

    Args:
        model: The types of the whole file.
        rules: Returns a problem for every rule that a config breaks.
        data: The file's content.
        file: Its name, for messages.

    Raises:
        ConfigError: The config is invalid; the error lists all problems of the first of the three
            that fails.
    """

    def validated(value: object) -> Config:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            raise ProblemError(*to_problems(error, value, model)) from None

    return parse_with(validated, rules, data, file)


def parse_with(
    convert: Callable[[object], T], rules: Callable[[T], Iterable[Problem]], data: bytes, file: str
) -> T:
    """Do what `parse_config` does, with types of any kind.

    Args:
        convert: Converts the file's content; a ProblemError has what is wrong with it.
        rules: Returns a problem for every rule that the result breaks.
        data: The file's content.
        file: Its name, for messages.

    Raises:
        ConfigError: See `parse_config`.
    """
    source = read_source(data)
    problems = source.problems
    if not problems:
        try:
            config = convert(source.value)
        except ProblemError as error:
            problems = [*error.problems]
        else:
            problems = list(rules(config))
            if not problems:
                return config
    raise ConfigError(report(file, problems, source.value_locations, source.key_locations))


def read_file(path: Path, fix: str) -> bytes:
    """Return the content of a config file, and one byte more than `MAX_BYTES` at most.

    Args:
        path: The file.
        fix: How to name another file, for the error.

    Raises:
        InputError: There is no such file, or it cannot be read.
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise InputError(f"{path} is a directory", fix)
        if not stat.S_ISREG(mode):
            raise InputError(f"{path} is not a regular file", fix)
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}", fix) from None
    except PermissionError:
        raise InputError(
            f"{path} cannot be read (no permission)", "allow your user to read it"
        ) from None
    except (OSError, ValueError) as error:
        # ValueError: a name with a NUL character.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path} cannot be read ({reason})", fix) from None


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


_AMOUNTS: Final = {"memory": MEMORY, "shm": MEMORY, "rate": RATE, "delay": DELAY}


def text_of(cluster: Cluster) -> str:
    """Return the text of a config, without the parts that belong to a run.

    `parse_cluster` reads the same nodes, jobs and links from it. Only an amount of memory that is
    no whole number of KiB is rounded.
    """
    content = cluster.model_dump(mode="json", exclude_defaults=True, exclude={*OF_A_RUN})
    nodes, links = content.get("nodes", {}), content.get("links", {})
    for part in (content.get("box", {}), *nodes.values(), *links.values()):
        for key, units in _AMOUNTS.items():
            if key in part:
                part[key] = exact(part[key], units)
    return json.dumps(content, ensure_ascii=False)
