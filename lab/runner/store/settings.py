"""The settings of a run as texts, except its seed, and the command that repeats it."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from lab.programs import SUFFIX
from lab.protocol.experiments.experiment import Policy, separated
from lab.protocol.experiments.program_flags import TRAINING_FLAGS, ProgramFlag
from lab.protocol.runtimes import TENSORFLOW
from lab.protocol.volume import RunSpec
from lab.protocol.volume.run_spec import own_policy, registered
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo

_MOUNTED: Final = PurePosixPath("/lab")
"""The project's directory in a container."""

DIGITS: Final = 12
"""The digits that are shown of a digest, as docker and git do."""

SEED: Final = "seed"


def settings_of(run: RunDir, info: RunInfo) -> dict[str, str]:
    """Return the settings of a run, without empty ones; runs with the same ones are repeats.

    Files count by their content: the config by its digest, and the user's own program by the digest
    of its copy in the run.

    Raises:
        OSError: A file of the program cannot be read.
    """
    return {name: text for name, text in _settings(run, info) if text}


def options_of(info: RunInfo) -> dict[str, str]:
    """Return flag to text of each option of `lab run`, without `--`; "" for a switch.

    Config, backend, defaults and what the experiment itself sets are left out.
    """
    spec, wanted = info.spec, registered(info.spec)
    usual = str(wanted.policy if wanted else own_policy(spec.framework))
    policy = str(Policy(spec.on_failure, spec.restarts))
    faults = [str(fault) for fault in spec.faults if not wanted or fault not in wanted.faults]
    texts = {
        "data-dir": _host_path(spec.data_dir),
        "resume": spec.resumed_from,
        "start": "; ".join(f"{task}: {moment}" for task, moment in spec.start.items()),
        "fault": "; ".join(faults),
        "on-failure": "" if policy == usual else policy,
    }
    return {name: text for name, text in texts.items() if text} | spec.plain_options()


def seed_of(info: RunInfo) -> str:
    """Return the seed of a run as text; the user's own program gets it as `--seed`."""
    given, _ = split_flags(info.spec.args, {SEED: TRAINING_FLAGS[SEED]})
    return str(info.hyperparameters.get(SEED, given.get(SEED, "")))


def split_flags(
    arguments: Sequence[str], flags: Mapping[str, ProgramFlag]
) -> tuple[dict[str, str], list[str]]:
    """Return flag to its last value, and the arguments that are not known flags."""
    values: dict[str, str] = {}
    others: list[str] = []
    for name, value, words in separated(arguments, flags):
        if name and _fits(flags[name], value):
            values.pop(name, None)
            values[name] = value
        else:
            others += words
    return values, others


def _fits(flag: ProgramFlag, value: str) -> bool:
    try:
        flag.parse(value)
    except ValueError:
        return False
    return True


def _settings(run: RunDir, info: RunInfo) -> Iterator[tuple[str, str]]:
    spec = info.spec
    yield "experiment", spec.experiment
    yield "program", _source(run, info) if spec.own else spec.program
    yield "program of each task", spec.program if spec.programs else ""
    yield "framework", _runtime(info)
    yield "backend", info.backend
    yield "config", info.cluster_sha256[:DIGITS] or info.project
    yield "tasks", ", ".join(f"{len(hosts)} {job}" for job, hosts in info.cluster.items())
    yield "nodes", str(len({str(row.get("node")) for row in info.tasks}) or "")
    yield "GPUs", str(len(info.gpus) or "")
    yield from ((name, str(value)) for name, value in info.hyperparameters.items() if name != SEED)
    wanted = registered(spec)
    known = wanted.flags if wanted else dict(_own_flags(info))
    recorded = {SEED, *info.hyperparameters}
    flags = {name: flag for name, flag in known.items() if name in recorded}
    yield from ((f"variables {job}".strip(), _assigned(env)) for job, env in spec.env.items())
    yield "packages", ", ".join(map(_pin, spec.packages))
    yield "other arguments", shlex.join(split_flags(spec.args, flags)[1])
    yield from ((name.replace("-", " "), text or "yes") for name, text in options_of(info).items())


def _own_flags(info: RunInfo) -> Iterator[tuple[str, ProgramFlag]]:
    """Yield the recorded flags of an experiment from outside of lab; the seed is one of any."""
    for name, value in info.hyperparameters.items():
        yield name, ProgramFlag("", str, is_switch=isinstance(value, bool))
    yield SEED, TRAINING_FLAGS[SEED]


def _assigned(env: Mapping[str, str]) -> str:
    return shlex.join(f"{name}={value}" for name, value in env.items())


def _pin(package: str) -> str:
    """Return a locked package without its hash: `boto3==1.40.1`."""
    return package.partition(" ")[0]


def _runtime(info: RunInfo) -> str:
    return str((info.plan or {}).get("runtime", TENSORFLOW.name))


def _host_path(data_dir: str) -> str:
    """Return a data directory by its path on the host, not in the container."""
    path = PurePosixPath(data_dir)
    return str(path.relative_to(_MOUNTED)) if path.is_relative_to(_MOUNTED) else data_dir


def _source(run: RunDir, info: RunInfo) -> str:
    """Return a digest of the source of the user's own program, as it was submitted.

    Another client's run has no copy of it: its program may be any, so it is like no other.
    """
    digest = hashlib.sha256()
    files = sorted(path for path in run.program.rglob(f"*{SUFFIX}") if path.is_file())
    for path in files:
        data = path.read_bytes()
        digest.update(f"{path.relative_to(run.program)}\0{len(data)}\0".encode(errors="replace"))
        digest.update(data)
    return digest.hexdigest()[:DIGITS] if files else f"unknown, of {info.run_id}"


def command(info: RunInfo) -> str:
    """Return the command that repeats a run, for the project's directory.

    It has no arguments that the experiment sets itself, and only the last value of a repeated
    flag. Arguments after `--` that are not flags of the experiment are after `--` again.
    """
    return shlex.join(["lab", "run", *_program(info), *_options(info), *_arguments(info)])


def _program(info: RunInfo) -> Iterator[str]:
    yield _own_program(info.spec) if info.spec.own else info.spec.experiment
    if info.spec.own and (version := _runtime(info)) != TENSORFLOW.name:
        yield from ("--framework", version)


def _own_program(spec: RunSpec) -> str:
    """Return the program as the user typed it, or the program of each task."""
    if spec.module:
        return spec.program
    if spec.origin:
        return spec.experiment
    if spec.programs:
        programs = spec.programs.items()
        return ",".join(f"{task}={Path(spec.folder, own)}" for task, own in programs)
    return str(Path(spec.folder, spec.program))


def _options(info: RunInfo) -> Iterator[str]:
    place = {"cluster": info.cluster_file, "backend": info.backend}
    options = {name: value for name, value in place.items() if value} | options_of(info)
    for name, value in options.items():
        if value.startswith("-") or (name == "listing" and value):
            yield f"--{name}={value}"
        else:
            yield from (f"--{name}", value) if value else (f"--{name}",)
    for name, value in info.spec.env.get("", {}).items():
        yield from ("--env", f"{name}={value}")
    for package in info.spec.packages:
        yield from ("--with", _pin(package))


def _arguments(info: RunInfo) -> Iterator[str]:
    """Yield the program's arguments: first the flags of `lab run`, then the others after `--`."""
    arguments = list(info.spec.args)
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
