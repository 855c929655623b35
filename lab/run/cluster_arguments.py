"""Decide which arguments describe the cluster and the task to a user's program.

A parser refuses unknown flags. So a program gets only arguments for flags that it declares, in its
own spelling. Flags are found by their names. Some names, such as `--index` or `--workers`, have
other meanings in other programs. They count only in a program that shows that it has a cluster.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.errors import InputError
from lab.run.declared_flags import DeclaredFlag, Form, declared_flags, imported_names
from lab.task.protocol.cluster_args import CLUSTER_ARGS, jobs_in
from lab.task.text import short, suggestion

JOB, INDEX, HOSTS = "job_name", "task_index", "_hosts"
"""What a flag can mean; the addresses of a job are `JOB_hosts`."""

_USUAL_JOBS: Final = frozenset({"ps", "worker", "chief", "master", "evaluator"})
_BUILDS_CLUSTER: Final = frozenset(
    {"ClusterSpec", "SimpleClusterResolver", "ClusterDef", "ClusterDeviceFilters"}
)
_LAB: Final = "lab.task."
_LAB_PARSERS: Final = frozenset({"task_flags", "training_flags"})
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


_PAIR: Final = ("taskid", "tasknumber", "index", "task", "idx", "workerid")
"""Vague names of the index that are clear beside a clear name of the job."""

_JOB: Final = _Names(
    ("jobname", "tasktype", "jobtype", "workertype", "nodetype", "taskrole", "jobrole"),
    ("job", "role", "rolename", "replicatype", "processtype", "servertype"),
)
_INDEX: Final = _Names(
    ("taskindex", "workerindex", "taskidx", "workeridx"),
    (
        *(
            "taskid",
            "tasknumber",
            "index",
            "task",
            "idx",
            "workerid",
            "worker",
            "replicaindex",
            "nodeindex",
        ),
        *("processindex", "serverindex", "machineindex", "rank", "workerrank", "noderank"),
        *("nodeid", "replicaid", "processid", "serverid", "machineid", "jobid", "jobindex", "id"),
    ),
)


_ANY_TEXT: Final = frozenset({_JOB.clear[0], *_INDEX.clear})
"""Names that have their meaning even if the flag takes a text, or has another default."""

_OF_HOSTS: Final = _Names(
    ("hosts", "shosts", "hostlist", "addresses", "addrs", "endpoints"),
    ("s", "", "list", "nodes", "machines", "servers", "host", "address", "addr"),
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
        templates: One template for each argument, as `lab.task.protocol.cluster_args` fills it in.
        meanings: What they say: `job_name`, `task_index`, `worker_hosts`.
        other: The flags of the program that mean nothing of the cluster, except switches.
    """

    templates: tuple[str, ...] = ()
    meanings: frozenset[str] = frozenset()
    other: tuple[str, ...] = ()


@dataclass(slots=True)
class _Choice:
    """The flags of a program, of which each gets at most one meaning."""

    flags: Sequence[DeclaredFlag]
    jobs: Collection[str]
    found: dict[str, DeclaredFlag] = field(default_factory=dict)

    def find(self, meaning: str, names: Iterable[str], *, clear: bool) -> None:
        """Give a meaning to the first flag with one of the names that has a fitting form."""
        for name in names:
            for flag in self.flags:
                if (
                    meaning not in self.found
                    and flag not in self.found.values()
                    and name in map(_plain, flag.names)
                    and (clear or not flag.guessed)
                    and self._fits(flag, meaning, clear=clear)
                ):
                    self.found[meaning] = flag

    def _fits(self, flag: DeclaredFlag, meaning: str, *, clear: bool) -> bool:
        is_sure = not _ANY_TEXT.isdisjoint(map(_plain, flag.names))
        if meaning == JOB:
            known = [value for value in (flag.choices or (flag.default,)) if value]
            fits = not known or self._name_a_job(known) or (is_sure and not flag.choices)
            return fits and flag.form in {Form.TEXT, Form.NEXT, Form.UNKNOWN}
        if meaning == INDEX and flag.form is Form.TEXT:
            return _is_number(flag.default) or (clear and is_sure and not flag.default)
        if meaning == INDEX:
            return flag.form in {Form.WHOLE, Form.NEXT, Form.UNKNOWN}
        return flag.form not in {Form.WHOLE, Form.OTHER} and not _is_number(flag.default)

    def _name_a_job(self, values: Iterable[str]) -> bool:
        return any(value in self.jobs or value in _USUAL_JOBS for value in values)

    def find_job_by_values(self) -> None:
        """Find the flag of the job by its choices or its default, beside a vague name.

        A flag that accepts all jobs of the config is the job's, whatever its name.
        """
        for flag in self.flags:
            is_named = not {*_JOB.vague}.isdisjoint(map(_plain, flag.names))
            names_all = len(self.jobs) > 1 and set(self.jobs) <= set(flag.choices)
            if names_all or (is_named and self._name_a_job([*flag.choices, flag.default])):
                self.found.setdefault(JOB, flag)

    def shows_cluster(self) -> bool:
        """Whether the flags show that the program has a cluster."""
        job = self.found.get(JOB)
        named = job is not None and self._name_a_job([*job.choices, job.default])
        return named or any(meaning != JOB for meaning in self.found)


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
    used = _choose(flags, jobs, given, builds=any(map(_builds_cluster, trees.values())))
    positional = [flag for flag in flags if not flag.flag]
    passed = all(flag in used.values() for flag in positional)
    found = {
        meaning: used[meaning]
        for meaning in (JOB, INDEX, *(f"{job}{HOSTS}" for job in jobs))
        if meaning in used and (used[meaning].flag or passed)
    }
    others = [flag for flag in flags if flag not in used.values() or not (flag.flag or passed)]
    return ClusterArguments(
        tuple(_templates(found, positional)), frozenset(found), tuple(_shown(others))
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
    choice = _Choice(flags, jobs)
    for flag, meaning in given.items():
        choice.found[meaning] = _declared_as(flag, flags)
    every = {f"{job}{HOSTS}": _hosts(job) for job in (*jobs, *sorted(_USUAL_JOBS - set(jobs)))}
    every = {JOB: _JOB, INDEX: _INDEX, **every}
    for meaning, names in every.items():
        choice.find(meaning, names.clear, clear=True)
    choice.find_job_by_values()
    if not (builds or given or choice.shows_cluster()):
        choice.find(INDEX, _PAIR, clear=False)
        addresses = [f"{job}{HOSTS}" for job in jobs]
        for meaning in addresses:
            choice.find(meaning, every[meaning].vague, clear=False)
        # Vague names are clear beside each other: --job_name and --task_id, or --ps and --workers.
        if not {JOB, INDEX} <= choice.found.keys() and len(choice.found.keys() & addresses) <= 1:
            return {}
    for meaning, names in every.items():
        choice.find(meaning, names.vague, clear=False)
    return choice.found


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


def parse_map(text: str) -> dict[str, str]:
    """Parse `task_type=job_name,machines=worker_hosts`.

    Returns:
        Flag to meaning.

    Raises:
        ValueError: The text does not have this form.
    """
    found = {}
    for part in text.split(","):
        flag, _, meaning = (each.strip() for each in part.partition("="))
        if not flag.strip("-") or not meaning:
            raise ValueError("FLAG=MEANING, such as task_type=job_name")
        found[flag] = meaning
    return found


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()


def _declared_as(flag: str, flags: Iterable[DeclaredFlag]) -> DeclaredFlag:
    """Return the flag that the user named, in the program's spelling if it declares the flag."""
    for each in flags:
        if not each.guessed and _plain(flag) in map(_plain, each.names):
            return each
    dashes = "" if flag.startswith("-") else "--" if len(flag) > 1 else "-"
    return DeclaredFlag(dashes + flag, (flag.lstrip("-"),))


def _shown(flags: Iterable[DeclaredFlag]) -> Iterator[str]:
    for flag in flags:
        if not flag.guessed and flag.form is not Form.OTHER:
            yield flag.flag or flag.names[0]


def _templates(
    found: Mapping[str, DeclaredFlag], positional: Sequence[DeclaredFlag]
) -> Iterator[str]:
    """Yield the arguments; a flag that takes several has no positional argument behind it."""
    values = {flag: _VALUES.get(meaning, f"{{{meaning}}}") for meaning, flag in found.items()}
    yield from (values[flag] for flag in positional if flag in values)
    words = [flag for flag in values if flag.form is Form.SEVERAL]
    for flag in words:
        yield from (flag.flag, _each(values[flag]))
    for flag, value in values.items():
        if flag in words or not flag.flag:
            continue
        if flag.form is Form.REPEATED:
            yield f"{flag.flag}={_each(value)}"
        elif flag.flag.startswith("--") and flag.form is not Form.NEXT:
            yield f"{flag.flag}={value}"
        else:  # optparse and getopt take `-j=worker` as "=worker"
            yield from (flag.flag, value)


_VALUES: Final = {JOB: "{job}", INDEX: "{index}"}


def _each(value: str) -> str:
    return value.replace(f"{HOSTS}}}", f"{HOSTS}...}}")


def _has_lab_parser(tree: ast.Module) -> bool:
    imported = [name for name in imported_names(tree) if name.startswith(_LAB)]
    used = (getattr(node, "attr", "") for node in ast.walk(tree)) if imported else ()
    return not _LAB_PARSERS.isdisjoint([*used, *(name.rpartition(".")[2] for name in imported)])


def _builds_cluster(tree: ast.Module) -> bool:
    """Whether a source uses TensorFlow's cluster or server."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) or getattr(node, "id", None)
        if name in _BUILDS_CLUSTER:
            return True
        above = getattr(node, "value", None)
        if name == "Server" and getattr(above, "attr", "") in {"train", "distribute"}:
            return True
    return False
