"""The command that repeats a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from lab.experiments.policy import FAIL, Policy
from lab.store.run_info import RunInfo
from lab.store.settings import split_flags
from lab.tf_versions import CURRENT
from lab.volume import READY_S, RunSpec
from lab.volume.run_spec import registered

_MOUNTED: Final = PurePosixPath("/lab")
"""The project's directory in a container."""


def command(info: RunInfo) -> str:
    """Return the command that repeats a run, for the project's directory.

    It has no arguments that the experiment sets itself, and only the last value of a repeated
    flag. Arguments after `--` that are not flags of the experiment are after `--` again.
    """
    return shlex.join(["lab", "run", *_program(info), *_options(info), *_arguments(info)])


def _program(info: RunInfo) -> Iterator[str]:
    yield _own_program(info.spec) if info.spec.own else info.spec.experiment
    for name in ("listing", "faithful", "mend"):
        if getattr(info.spec, name):
            yield f"--{name}"
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
    wanted = registered(info.spec)
    start = "; ".join(f"{task}: {when}" for task, when in info.spec.start.items())
    own_faults = [str(each) for each in info.spec.faults if not wanted or each not in wanted.faults]
    policy, usual = (
        str(Policy(info.spec.on_failure, info.spec.restarts)),
        wanted.policy if wanted else FAIL,
    )
    flags = {
        "cluster": info.cluster_file,
        "backend": info.backend,
        "data-dir": _host_path(info.spec.data_dir),
        "resume": info.spec.resumed_from,
        "map": ",".join(f"{flag}={meaning}" for flag, meaning in info.spec.map.items()),
        "start": start,
        "fault": "; ".join(own_faults),
        "on-failure": "" if policy == str(usual) else policy,
        "ready-within": (
            ""
            if info.spec.ready_s == (0 if info.spec.own else READY_S)
            else _seconds(info.spec.ready_s)
        ),
    }
    for name, value in flags.items():
        if value:
            yield from (f"--{name}", value)
    for name, value in info.spec.plain_options().items():
        if value.startswith("-"):
            yield f"--{name}={value}"
        else:
            yield from (f"--{name}", value) if value else (f"--{name}",)


def _host_path(data_dir: str) -> str:
    """Return a data directory by its path on the host, not in the container."""
    path = PurePosixPath(data_dir)
    return str(path.relative_to(_MOUNTED)) if path.is_relative_to(_MOUNTED) else data_dir


def _seconds(value: float) -> str:
    return f"{value:.0f}s" if value == int(value) else f"{value:f}"


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
