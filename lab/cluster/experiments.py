"""Experiments from outside of lab: `experiments.yaml` of a project, or of an installed package.

A run of one is a run of a user's own program under a name, with flags that are checked before it
starts, and results that it must report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from lab.base.converters import boolean, one_of, whole
from lab.base.errors import InputError
from lab.base.plugins import add_of_packages, plugins
from lab.base.shipped import SHIPPED
from lab.base.text import suggestion
from lab.cluster.config.allocation import PS
from lab.cluster.config.cluster import FLAG, JOB, MAX_FLAGS, ConfigModel, shown, text_of
from lab.cluster.config.diagnostics import Problem
from lab.cluster.config.load import parse_config, read_file
from lab.protocol.experiments.experiment import Experiment, Policy, parse_policy
from lab.protocol.experiments.program_flags import ProgramFlag, real
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.runtimes import RUNTIMES
from lab.protocol.volume.run_spec import own_policy

FILE: Final = "experiments.yaml"

_LONGEST: Final = 200
_NAME: Final = re.compile("(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError
    return text


def _line(text: str) -> str:
    if not 0 < len(text) <= _LONGEST or not text.isprintable():
        raise ValueError
    return text


_Name = Annotated[
    str, text_of(_name, "lower-case letters, digits and single hyphens, at most 40"), shown("bert")
]
_Line = Annotated[
    str, text_of(_line, f"one line of 1 to {_LONGEST} characters"), shown("scripts/bert.py")
]
_Lines = Annotated[tuple[_Line, ...], Field(strict=False, max_length=MAX_FLAGS)]
_Job = Annotated[str, Field(pattern=JOB)]
_Flag = Annotated[str, Field(pattern=FLAG)]

_Policy = Annotated[
    Policy, text_of(parse_policy, "fail, restart, restart:N or continue"), shown("restart:3")
]


class FlagEntry(ConfigModel):
    """A flag of a program. The type of its default is that of its values."""

    help: _Line
    """What it means, in one line."""

    default: bool | int | float | _Line | None = None
    """Its value if it is not given; by default the program decides."""

    choices: _Lines = ()
    """Its possible values; by default any."""

    def flag(self) -> ProgramFlag:
        """Return the flag."""
        is_switch = isinstance(self.default, bool)
        kinds: Mapping[type, Callable[[str], object]] = {bool: boolean, int: whole(0), float: real}
        known = "" if self.default is None or is_switch else f" (default: {self.default})"
        parse = one_of(*self.choices) if self.choices else kinds.get(type(self.default), str)
        return ProgramFlag(f"{self.help}{known}", parse, is_switch=is_switch, default=self.default)


class Entry(ConfigModel):
    """An experiment."""

    program: _Line
    """Its program, relative to this file."""

    summary: _Line
    """What it shows, in one line."""

    jobs: Annotated[tuple[_Job, ...], Field(strict=False, min_length=1, max_length=MAX_FLAGS)]
    """The jobs that the cluster must have."""

    counts: dict[_Job, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """The exact number of tasks of a job; by default any number from 1."""

    framework: str
    """The framework of its program: tensorflow, tensorflow-2.15, torch or jax."""

    args: _Lines = ()
    """Arguments of each run, before those of the user."""

    flags: Annotated[dict[_Flag, FlagEntry], Field(max_length=MAX_FLAGS)] = Field(
        default_factory=dict
    )
    """The flags of the program by name."""

    results: _Lines = ()
    """The names of the results that each run must report."""

    expected: _Line = ""
    """The expected outcome, in one line."""

    on_failure: _Policy | None = None
    """What happens when a task fails: fail, restart, restart:N or continue; by default that of any
    program with this framework."""


class Catalogue(ConfigModel):
    """The experiments of a project or a package."""

    version: Annotated[int, Field(ge=1, le=1)]
    """The version of this format."""

    experiments: Annotated[dict[_Name, Entry], Field(min_length=1, max_length=MAX_FLAGS)]
    """The experiments by name."""


def read_experiments(folder: Path, origin: str) -> dict[str, Experiment]:
    """Read `experiments.yaml` in a directory.

    Args:
        folder: The directory; it contains the programs.
        origin: Where the experiments are from, as a text.

    Returns:
        The experiments by name; their programs are absolute paths.

    Raises:
        InputError: The file cannot be read.
        ConfigError: It is invalid; the error lists all its problems.
    """
    path = folder / FILE
    data = read_file(path, f"write it, or remove {FILE}")
    read = parse_config(Catalogue, partial(_problems, folder), data, str(path))
    found = read.experiments.items()
    return {name: _experiment(name, entry, folder, origin) for name, entry in found}


def _experiment(name: str, entry: Entry, folder: Path, origin: str) -> Experiment:
    return Experiment(
        name=name,
        program=str(folder.absolute() / entry.program),
        summary=entry.summary,
        jobs=entry.jobs,
        counts=entry.counts,
        services=tuple(job for job in entry.jobs if job == PS),
        args=entry.args,
        flags={flag: each.flag() for flag, each in entry.flags.items()},
        policy=entry.on_failure or own_policy(RUNTIMES[entry.framework].framework),
        results=entry.results,
        expected=entry.expected,
        runtime=entry.framework,
        origin=origin,
    )


def _problems(folder: Path, read: Catalogue) -> Iterator[Problem]:
    """Yield a problem for each rule that types cannot express."""
    root = folder.resolve()
    for name, entry in read.experiments.items():
        at = ("experiments", name)
        if name in EXPERIMENTS:
            yield Problem(at, f"lab has an experiment {name}; use another name", on_key=True)
        program = Path(os.path.realpath(root / entry.program))  # also of links in a circle
        if not program.is_relative_to(root):
            yield Problem((*at, "program"), f"must be below {folder}")
        elif not program.is_file():
            yield Problem((*at, "program"), "there is no such file")
        if (wanted := entry.framework) not in RUNTIMES:
            message, place = f"there is no framework {wanted}", (*at, "framework")
            yield Problem(place, message, misspelt=wanted, candidates=list(RUNTIMES))
        for flag, each in entry.flags.items():
            where = (*at, "flags", flag, "default")
            if each.default is True:
                yield Problem(where, "must be false: the flag itself means true")
            elif each.choices and each.default is not None and each.default not in each.choices:
                yield Problem(where, f"is not one of {', '.join(each.choices)}")
        for job in entry.counts.keys() - set(entry.jobs):
            yield Problem((*at, "counts", job), "is not one of `jobs`", on_key=True)


def outside_experiments(root: Path) -> dict[str, Experiment]:
    """Return the experiments of a project, then those of installed packages; by name.

    A package whose experiments cannot be used, and a name that is taken, are left out with a
    warning.

    Args:
        root: The project's directory.

    Raises:
        InputError: The project's file cannot be read, or is invalid.
    """
    found: dict[str, Experiment] = {}
    folder = own_folder(root)
    if os.path.lexists(folder / FILE):
        found.update(read_experiments(folder, FILE))
    return add_of_packages(found, plugins("experiments").values(), read_experiments)


def own_folder(root: Path) -> Path:
    """Return where the user's own files are: the project, or without one the current directory."""
    return Path() if root.resolve() == SHIPPED else root


def find_experiment(name: str, root: Path) -> Experiment | None:
    """Return the experiment of this name: lab's own, the project's, or that of a package; or None.

    Args:
        name: The name.
        root: The project's directory.

    Raises:
        InputError: The project's file is invalid.
    """
    return EXPERIMENTS.get(name) or outside_experiments(root).get(name)


def experiment_named(name: str, root: Path) -> Experiment:
    """Return the experiment of this name, as `find_experiment` does.

    Raises:
        InputError: There is no such experiment, or the project's file is invalid.
    """
    if found := find_experiment(name, root):
        return found
    hint = suggestion(name, [*EXPERIMENTS, *outside_experiments(root)])
    raise InputError(
        f"no experiment {name!r}",
        f"{hint}see `lab experiments`; run your own program by its path, such as {name}.py",
    )
