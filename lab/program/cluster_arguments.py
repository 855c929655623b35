"""Decide which arguments describe the cluster and the task to a user's program.

A parser refuses unknown flags. So a program gets only arguments for flags that it declares, in its
own spelling. Flags are found by their names. Some names, such as `--index` or `--workers`, have
other meanings in other programs. They count only in a program that shows that it has a cluster.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.program.declared_flags import DeclaredFlag, Form, declared_flags, imported_names
from lab.text import short, suggestion
from lab.volume.run_spec import CLUSTER_ARGS, jobs_in

JOB, INDEX, HOSTS, NAMES = "job_name", "task_index", "_hosts", "_names"
"""What a flag can mean; the addresses of a job are `JOB_hosts`, its hosts `JOB_names`."""

_USUAL_JOBS: Final = frozenset({"ps", "worker", "chief", "master", "evaluator"})
_BUILDS_CLUSTER: Final = frozenset(
    {"ClusterSpec", "SimpleClusterResolver", "ClusterDef", "ClusterDeviceFilters"}
)
_LAB: Final = "lab.task."
_LAB_PARSERS: Final = frozenset({"experiment_flags", "task_flags"})
"""The functions of `lab` that make a parser, which accepts every flag of the cluster."""


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of flags, in lower case and without dashes and underscores.

    Attributes:
        clear: Names that have this meaning in any program.
        vague: Names that have it only in a program with a cluster.
    """

    clear: tuple[str, ...]
    vague: tuple[str, ...]


_JOB: Final = _Names(
    ("jobname", "tasktype", "jobtype", "workertype"), ("job", "role", "rolename", "replicatype")
)
_INDEX: Final = _Names(
    ("taskindex", "workerindex", "taskidx", "workeridx"),
    (
        *("taskid", "tasknumber", "index", "task", "idx", "workerid", "worker", "rank"),
        *("workerrank", "nodeid", "replicaid", "jobid", "id"),
    ),
)
_BESIDE_JOB: Final = ("taskid", "tasknumber", "index", "task", "idx", "workerid")
"""Vague names of the index that are clear beside a clear name of the job."""

_ANY_TEXT: Final = frozenset({_JOB.clear[0], *_INDEX.clear})
"""Names that have their meaning even if the flag takes a text, or has another default."""

_OF_HOSTS: Final = _Names(
    ("hosts", "shosts", "hostlist", "addresses"), ("s", "", "list", "nodes", "servers", "host")
)
"""What follows the job in the names of flags for its addresses."""


def _hosts(job: str) -> _Names:
    others = ["parameterserver", "paramserver"] if job == "ps" else []
    clear, vague = (
        tuple(f"{name}{suffix}" for name in (job, *others) for suffix in suffixes)
        for suffixes in (_OF_HOSTS.clear, _OF_HOSTS.vague)
    )
    return _Names((*clear, *(f"{name}s" for name in others)), vague)


@dataclass(frozen=True, slots=True)
class ClusterArguments:
    """The arguments that describe the cluster and the task to a program.

    Attributes:
        templates: One template for each argument; the agent fills it in.
        meanings: What they say: `job_name`, `task_index`, `worker_hosts`.
        other: The flags of the program that mean nothing of the cluster, except switches.
    """

    templates: tuple[str, ...] = ()
    meanings: frozenset[str] = frozenset()
    other: tuple[str, ...] = ()


def _fits(flag: DeclaredFlag, meaning: str, jobs: Collection[str], *, clear: bool) -> bool:
    """Whether a flag with a name of a meaning has a fitting form and default."""
    is_sure = clear and not _ANY_TEXT.isdisjoint(map(_plain, flag.names))
    if meaning == JOB:
        known = flag.choices or flag.default
        fits = not known or _names_a_job(flag, jobs) or (is_sure and not flag.choices)
        return fits and flag.form in {Form.TEXT, Form.UNKNOWN}
    if meaning == INDEX and flag.form is Form.TEXT:
        return _is_number(flag.default) or (is_sure and not flag.default)
    if meaning == INDEX:
        return flag.form in {Form.WHOLE, Form.UNKNOWN}
    return flag.form not in {Form.WHOLE, Form.OTHER} and not _is_number(flag.default)


def _names_a_job(flag: DeclaredFlag, jobs: Collection[str]) -> bool:
    return any(value in jobs or value in _USUAL_JOBS for value in (*flag.choices, flag.default))


def _is_job_by_values(flag: DeclaredFlag, jobs: Collection[str]) -> bool:
    """Whether a flag's choices or default, beside a vague name, show that it is the job's.

    A flag that accepts all jobs of the config is the job's, whatever its name.
    """
    is_named = not {*_JOB.vague}.isdisjoint(map(_plain, flag.names))
    names_all = len(jobs) > 1 and set(jobs) <= set(flag.choices)
    return names_all or (is_named and _names_a_job(flag, jobs))


def find_arguments(
    trees: Mapping[Path, ast.Module], jobs: Collection[str], given: Mapping[str, str]
) -> ClusterArguments:
    """Return the arguments that describe the cluster and the task to a program.

    Args:
        trees: The syntax trees of the program, which is the first, and of the modules that it
            imports.
        jobs: The config's jobs.
        given: Flag to meaning, as the user gave them with `--map`.
    """
    if any(_has_lab_parser(tree) for tree in trees.values()):
        return ClusterArguments(CLUSTER_ARGS, frozenset({JOB, INDEX}))
    flags = declared_flags(trees)
    used = _choose(flags, jobs, given, builds=any(map(builds_cluster, trees.values())))
    positional = [flag for flag in flags if not flag.flag]
    passed = all(flag in used.values() for flag in positional)
    found = {
        meaning: used[meaning]
        for meaning in (JOB, INDEX, *(f"{job}{HOSTS}" for job in jobs))
        if meaning in used and (used[meaning].flag or passed)
    }
    others = [flag for flag in flags if flag not in used.values() or not (flag.flag or passed)]
    return ClusterArguments(
        tuple(_templates(found, flags)),
        frozenset(found),
        tuple(each.flag or each.names[0] for each in others if each.form is not Form.OTHER),
    )


def _choose(
    flags: Sequence[DeclaredFlag],
    jobs: Collection[str],
    given: Mapping[str, str],
    *,
    builds: bool,
) -> Mapping[str, DeclaredFlag]:
    """Return meaning to flag; vague names count only in a program that shows that it has a cluster.

    Args:
        flags: The flags that the program declares.
        jobs: The config's jobs.
        given: Flag to meaning, as the user gave them.
        builds: Whether the program builds TensorFlow's cluster or server.
    """
    found = {meaning: _declared_as(flag, flags) for flag, meaning in given.items()}
    every = {JOB: _JOB, INDEX: _INDEX}
    every |= {f"{job}{HOSTS}": _hosts(job) for job in (*jobs, *sorted(_USUAL_JOBS - set(jobs)))}

    def find(meaning: str, names: Iterable[str], *, clear: bool) -> None:
        for flag in (flag for name in names for flag in flags if name in map(_plain, flag.names)):
            is_free = meaning not in found and flag not in found.values()
            if is_free and _fits(flag, meaning, jobs, clear=clear):
                found[meaning] = flag

    for meaning, names in every.items():
        find(meaning, names.clear, clear=True)
    for flag in flags:
        if _is_job_by_values(flag, jobs):
            found.setdefault(JOB, flag)
    is_job_shown = JOB in found and _names_a_job(found[JOB], jobs)
    if JOB in found:
        find(INDEX, _BESIDE_JOB, clear=False)
    if builds or given or is_job_shown or found.keys() - {JOB}:
        for meaning, names in every.items():
            find(meaning, names.vague, clear=False)
        return found
    return {}


def has_placeholders(
    arguments: Iterable[str], jobs: Collection[str], given: Mapping[str, str]
) -> bool:
    """Whether the user's arguments describe the cluster with placeholders, such as `{job}`.

    Args:
        arguments: The program's arguments.
        jobs: The config's jobs.
        given: Flag to meaning, as the user gave them with `--map`.

    Raises:
        InputError: A placeholder is for another job, or a meaning is unknown.
    """
    named = jobs_in(arguments)
    unknown = next((job for job in named or () if job not in jobs), None)
    if unknown is not None:
        known = [f"{{{job}{HOSTS}}}" for job in jobs]
        what = f"{{{unknown}{HOSTS}}}: the config has no job {unknown!r}"
        raise InputError(what, f"use {' or '.join(known)}")
    if named is not None and given:
        raise InputError(
            "--map has no effect beside a placeholder after --", "leave out one of the two"
        )
    meanings = [JOB, INDEX, *(f"{job}{HOSTS}" for job in jobs)]
    for flag, meaning in given.items():
        if meaning not in meanings:
            raise InputError(
                f"--map {short(flag)}={short(meaning)}: no meaning {short(meaning)!r}",
                f"{suggestion(meaning, meanings)}use {', '.join(meanings[:-1])} or {meanings[-1]}",
            )
    return named is not None


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _declared_as(flag: str, flags: Iterable[DeclaredFlag]) -> DeclaredFlag:
    """Return the flag that the user named, in the program's spelling if it declares the flag."""
    for each in flags:
        if _plain(flag) in map(_plain, each.names):
            return each
    dashes = "" if flag.startswith("-") else "--" if len(flag) > 1 else "-"
    return DeclaredFlag(dashes + flag, (flag.lstrip("-"),))


def _templates(found: Mapping[str, DeclaredFlag], flags: Sequence[DeclaredFlag]) -> Iterator[str]:
    """Yield the arguments; a flag that takes several has no positional argument behind it."""
    has_port = any(_plain(name).endswith("port") for flag in flags for name in flag.names)
    values = {
        flag: {JOB: "{job}", INDEX: "{index}"}.get(meaning) or _addresses(meaning, flag, has_port)
        for meaning, flag in found.items()
    }
    yield from (values[flag] for flag in flags if flag in values and not flag.flag)
    named = [flag for flag in values if flag.flag]
    for flag in sorted(named, key=lambda flag: flag.form is not Form.SEVERAL):
        if flag.form is Form.SEVERAL or not flag.flag.startswith("--"):
            yield from (flag.flag, values[flag])  # optparse takes `-j=worker` as "=worker"
        else:
            yield f"{flag.flag}={values[flag]}"


def _addresses(meaning: str, flag: DeclaredFlag, has_port: bool) -> str:
    """Return the placeholder of a job's addresses, or of its hosts if the program adds a port.

    Such a program has a flag for the port, and the default is a host, such as `localhost`.
    """
    adds_port = has_port and flag.default and ":" not in flag.default
    several = "..." if flag.form in {Form.SEVERAL, Form.REPEATED} else ""
    return f"{{{meaning.removesuffix(HOSTS)}{NAMES if adds_port else HOSTS}{several}}}"


def _has_lab_parser(tree: ast.Module) -> bool:
    imported = [name for name in imported_names(tree) if name.startswith(_LAB)]
    used = (getattr(node, "attr", "") for node in ast.walk(tree)) if imported else ()
    return not _LAB_PARSERS.isdisjoint([*used, *(name.rpartition(".")[2] for name in imported)])


def builds_cluster(tree: ast.Module) -> bool:
    """Whether a source uses TensorFlow's cluster or server."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if name in _BUILDS_CLUSTER:
            return True
        above = getattr(node, "value", None)
        if name == "Server" and getattr(above, "attr", "") in {"train", "distribute"}:
            return True
    return False
