"""The command that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from lab.store.run_info import RunInfo
from lab.store.settings import options_of, split_flags
from lab.tf_versions import CURRENT
from lab.volume import RunSpec
from lab.volume.run_spec import registered


def command(info: RunInfo) -> str:
    """Return the command that repeats a run, for the project's directory.

    It has no arguments that the experiment sets itself, and only the last value of a repeated
    flag. Arguments after `--` that are not flags of the experiment are after `--` again.
    """
    return shlex.join(["lab", "run", *_program(info), *_options(info), *_arguments(info)])


def _program(info: RunInfo) -> Iterator[str]:
    yield _own_program(info.spec) if info.spec.own else info.spec.experiment
    tensorflow = (info.plan or {}).get("tensorflow", CURRENT.tensorflow)
    if info.spec.own and tensorflow != CURRENT.tensorflow:
        yield from ("--tensorflow", str(tensorflow))


def _own_program(spec: RunSpec) -> str:
    """Return the program as the user typed it, or the program of each task."""
    if spec.module:
        return spec.program
    if spec.programs:
        each = spec.programs.items()
        return ",".join(f"{task}={Path(spec.folder, own.program)}" for task, own in each)
    return str(Path(spec.folder, spec.program))


def _options(info: RunInfo) -> Iterator[str]:
    place = {"cluster": info.cluster_file, "backend": info.backend}
    options = {name: value for name, value in place.items() if value} | options_of(info)
    for name, value in options.items():
        if value.startswith("-"):
            yield f"--{name}={value}"
        else:
            yield from (f"--{name}", value) if value else (f"--{name}",)


def _arguments(info: RunInfo) -> Iterator[str]:
    """Yield the program's arguments: first the flags of `lab run`, then the others after `--`."""
    arguments = [str(argument) for argument in info.spec.args]
    wanted = registered(info.spec)
    if wanted is None:
        yield from ["--", *arguments] if info.spec.own and arguments else arguments
        return
    given, others = split_flags(arguments, wanted.flags)
    preset, _ = split_flags(wanted.args, wanted.flags)
    for name, value in given.items():
        if preset.get(name) != value:
            yield f"--{name}={value}"
    if others:
        yield from ("--", *others)
