"""The words that make a run again, as one would type them."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import PurePosixPath
from typing import Final

from lab.run.run_info import RunInfo
from lab.task.protocol import READY_S, RunSpec
from lab.task.protocol.experiments import ProgramFlag, registered
from lab.task.protocol.policy import FAIL, Policy
from lab.tf_versions import CURRENT

_MOUNTED: Final = PurePosixPath("/lab")
"""Where a container sees the project's directory."""


def command(info: RunInfo) -> str:
    """The words that make the same run again, as one would type them in the project's directory.

    What the experiment gives by itself is left out, and of a flag that was given twice what counted
    stays. What stood behind `--` and is no flag of the experiment's stands there again.
    """
    return shlex.join(["lab", "run", *_program(info), *_options(info), *_arguments(info)])


def _program(info: RunInfo) -> Iterator[str]:
    yield info.spec.program if info.spec.own or info.spec.listing else info.spec.experiment
    for name in ("listing", "faithful", "mend"):
        if getattr(info.spec, name):
            yield f"--{name}"
    tensorflow = (info.plan or {}).get("tensorflow", CURRENT.tensorflow)
    if info.spec.own and tensorflow != CURRENT.tensorflow:
        yield from ("--tensorflow", str(tensorflow))


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
        "data-dir": _seen_here(info.spec.data_dir),
        "resume": info.spec.resumed_from,
        "start": start,
        "fault": "; ".join(own_faults),
        "on-failure": "" if policy == str(usual) else policy,
        "ready-within": (
            ""
            if info.spec.ready_s == (0 if info.spec.own else READY_S)
            else _seconds(info.spec.ready_s)
        ),
    }
    for name, value in {**flags, **_limits(info.spec)}.items():
        if value:
            yield from (f"--{name}", value)


def _limits(spec: RunSpec) -> dict[str, str]:
    """Flag to value of each limit in seconds that is not the default: of `stall_s`, `--stall`.

    `ready_s` is left out: its default depends on the program.
    """
    return {
        each.name.removesuffix("_s").replace("_", "-"): _seconds(getattr(spec, each.name))
        for each in fields(spec)
        if each.name.endswith("_s")
        and each.name != "ready_s"
        and getattr(spec, each.name) != each.default
    }


def _seen_here(data_dir: str) -> str:
    """A directory with data as the user names it, not as a container does."""
    path = PurePosixPath(data_dir)
    return str(path.relative_to(_MOUNTED)) if path.is_relative_to(_MOUNTED) else data_dir


def _seconds(value: float) -> str:
    return f"{value:.0f}s" if value == int(value) else f"{value:f}"


def _arguments(info: RunInfo) -> Iterator[str]:
    """The program's words: flags that `lab run` knows first, and all others behind `--`."""
    arguments = [str(argument) for argument in info.spec.args]
    wanted = registered(info.spec)
    if wanted is None:
        yield from ["--", *arguments] if info.spec.own and arguments else arguments
        return
    given, others = _distinguished(arguments, wanted.flags)
    preset, _ = _distinguished(wanted.args, wanted.flags)
    for name, value in given.items():
        if preset.get(name) != value:
            yield f"--{name}={value}"
    if others:
        yield from ("--", *others)


def _distinguished(
    arguments: Sequence[str], flags: Mapping[str, ProgramFlag]
) -> tuple[dict[str, str], list[str]]:
    """Flag to its value, the last one of a name; and the words that are none of these flags."""
    given: dict[str, str] = {}
    others: list[str] = []
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        name, equals, value = argument.removeprefix("--").partition("=")
        flag = flags.get(name) if argument.startswith("--") else None
        taken = [argument]
        if flag is not None and not equals:
            if not flag.is_switch and queue:
                taken.append(queue.pop(0))
            value = "true" if flag.is_switch else "".join(taken[1:])
        if flag is not None and _fits(flag, value):
            given.pop(name, None)
            given[name] = value
        else:
            others += taken
    return given, others


def _fits(flag: ProgramFlag, value: str) -> bool:
    try:
        flag.parse(value)
    except (ValueError, ArgumentTypeError):
        return False
    return True
