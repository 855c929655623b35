"""What the flags of a program mean: the job, the index, the addresses and the rank of its process.

Flags are found by their names. Some names, such as `--index` or `--workers`, have other meanings in
other programs: they count only in a program that shows that it has a cluster. Those of a rank, such
as `--local_rank`, count only in a process that has the variable with their value.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from lab.base.variables import LAB_CLUSTER, LAB_TASK

JOB, INDEX, HOSTS = "job", "index", "hosts of "
"""The meanings of a flag; the addresses of the job `ps` are `hosts of ps`."""

ENV_URL: Final = "env://"
"""PyTorch's way to find the other ranks: by the variables of the process."""

OF_RANK: Final[Mapping[str, tuple[str, ...]]] = {
    "LOCAL_RANK": ("localrank",),
    "RANK": ("rank", "globalrank", "distrank", "distributedrank"),
    "WORLD_SIZE": ("worldsize", "distworldsize", "distributedworldsize"),
    "GROUP_RANK": ("noderank", "machinerank"),
    "GROUP_WORLD_SIZE": ("nnodes", "numnodes", "nummachines"),
    "MASTER_ADDR": ("masteraddr", "masteraddress"),
    "MASTER_PORT": ("masterport",),
    ENV_URL: ("initmethod", "disturl", "distributedinitmethod"),
    "JAX_PROCESS_ID": ("processid", "processindex", "rank", "hostid"),
    "JAX_NUM_PROCESSES": ("numprocesses", "processcount", "worldsize", "numhosts"),
    "JAX_COORDINATOR_ADDRESS": ("coordinator", "coordinatoraddress"),
}
"""The meanings of the flags of a rank: its variable, and their names.

A PyTorch program whose flag has a name of JAX usually starts its own processes:
`--num-processes`.
"""

_TEXTS: Final = frozenset({"MASTER_ADDR", ENV_URL, "JAX_COORDINATOR_ADDRESS"})
_NO_RANK: Final = frozenset({"", "-1", "0"})
"""The defaults of a `--rank`; with another one, it may be that of a matrix."""

TEXT, WHOLE, UNTYPED, OTHER = "text", "whole number", "untyped", "other"
"""The kinds of a flag's value; the parser accepts any value for an untyped one."""

_USUAL_JOBS: Final = ("ps", "worker", "chief", "master", "evaluator")


class Flag(NamedTuple):
    """A flag that a parser declares.

    Attributes:
        options: As it is written on the command line, the best spelling first; empty for a
            positional argument.
        names: The options and the program's name for the value, in lower case and without dashes
            and underscores.
        kind: The kind of its value.
        many: Whether it takes several arguments ("after" it) or is "repeated" for each value.
        choices: All values that it accepts, if they are listed.
        default: Its default, if it is a text or a whole number.
    """

    options: tuple[str, ...]
    names: tuple[str, ...]
    kind: str = UNTYPED
    many: str = ""
    choices: tuple[str, ...] = ()
    default: str = ""


_Names = tuple[tuple[str, ...], tuple[str, ...]]
"""Plain names with a meaning: in any program, and only in a program with a cluster."""

_JOB: Final[_Names] = (
    ("jobname", "tasktype", "jobtype", "workertype"),
    ("job", "role", "rolename", "replicatype"),
)
_INDEX: Final[_Names] = (
    ("taskindex", "workerindex", "taskidx", "workeridx"),
    (
        *("taskid", "tasknumber", "index", "task", "idx", "workerid", "worker", "rank"),
        *("workerrank", "nodeid", "replicaid", "jobid", "id"),
    ),
)
_ANY_TEXT: Final = frozenset({_JOB[0][0], *_INDEX[0], *chain(*OF_RANK.values())})
"""Names that have their meaning even if the flag takes a text, or has another default."""


def _hosts(job: str) -> _Names:
    others = ("parameterserver", "paramserver") if job == "ps" else ()
    clear, vague = (
        tuple(f"{name}{suffix}" for name in (job, *others) for suffix in suffixes)
        for suffixes in (
            ("hosts", "shosts", "hostlist", "addresses"),
            ("s", "", "list", "nodes", "servers", "host"),
        )
    )
    return (*clear, *(f"{name}s" for name in others)), vague


class Place:
    """The place of this process in the cluster, and its values for flags.

    Attributes:
        task: The task's name.
        cluster: TensorFlow's cluster spec.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Read it from the variables of the process."""
        self.task = environ[LAB_TASK]
        self.cluster: Mapping[str, Sequence[str]] = json.loads(environ[LAB_CLUSTER])
        is_torch = "RANK" in environ
        self._variables = {**environ, ENV_URL: ENV_URL} if is_torch else environ

    def choose(self, flags: Sequence[Flag], *, builds: bool) -> dict[str, Flag]:
        """Return meaning to flag.

        Args:
            flags: The flags that the program declares.
            builds: Whether the program builds TensorFlow's cluster or server.
        """
        chosen: dict[str, Flag] = {}
        jobs = dict.fromkeys((*self.cluster, *_USUAL_JOBS))
        known = {JOB: _JOB, INDEX: _INDEX} | {f"{HOSTS}{job}": _hosts(job) for job in jobs}

        def find(meaning: str, names: Iterable[str], *, clear: bool) -> None:
            for flag in (flag for name in names for flag in flags if name in flag.names):
                is_free = meaning not in chosen and flag not in chosen.values()
                if is_free and _fits(flag, meaning, self.cluster, clear=clear):
                    chosen[meaning] = flag

        for meaning, (clear, _) in known.items():
            find(meaning, clear, clear=True)
        for flag in flags:
            if _is_job_by_values(flag, self.cluster):
                chosen.setdefault(JOB, flag)
        has_cluster = builds or bool(chosen)
        for variable in filter(self._variables.__contains__, OF_RANK):
            find(variable, OF_RANK[variable], clear=True)
        for meaning, (_, vague) in known.items() if has_cluster else ():
            find(meaning, vague, clear=False)
        return {meaning: chosen[meaning] for meaning in (*known, *OF_RANK) if meaning in chosen}

    def values(self, meaning: str, chosen: Mapping[str, Flag], flags: Sequence[Flag]) -> list[str]:
        """Return the values of a chosen flag; none if its job has no tasks.

        A rank has no job, so a flag beside one for the job is for the task's index. A program with
        a flag for the port adds it to hosts whose default has none: `localhost`.
        """
        flag, (job, _, index) = chosen[meaning], self.task.rpartition("-")
        if meaning in OF_RANK:
            return [self._variables[meaning]]
        if meaning == JOB:
            return [job]
        if meaning == INDEX:
            return [index if JOB in chosen else self._variables.get("RANK", index)]
        addresses = [*self.cluster.get(meaning.removeprefix(HOSTS), ())]
        has_port = any(name.endswith("port") for declared in flags for name in declared.names)
        if has_port and flag.default and ":" not in flag.default:
            addresses = [address.rpartition(":")[0] for address in addresses]
        return addresses if flag.many or not addresses else [",".join(addresses)]


def _fits(flag: Flag, meaning: str, jobs: Collection[str], *, clear: bool) -> bool:
    """Whether a flag with a name of a meaning takes such a value, and has a fitting default."""
    if meaning in OF_RANK and "rank" in flag.names and flag.default not in _NO_RANK:
        return False
    is_sure = clear and not _ANY_TEXT.isdisjoint(flag.names)
    if meaning == JOB:
        is_open = not (flag.choices or flag.default) or (is_sure and not flag.choices)
        return flag.kind in {TEXT, UNTYPED} and (is_open or _names_a_job(flag, jobs))
    is_whole = meaning == INDEX or (meaning in OF_RANK and meaning not in _TEXTS)
    if is_whole and flag.kind == TEXT:
        return _is_number(flag.default) or (is_sure and not flag.default)
    if is_whole:
        return flag.kind in {WHOLE, UNTYPED}
    return flag.kind in {TEXT, UNTYPED} and not _is_number(flag.default)


def _names_a_job(flag: Flag, jobs: Collection[str]) -> bool:
    return any(value in jobs or value in _USUAL_JOBS for value in (*flag.choices, flag.default))


def _is_job_by_values(flag: Flag, jobs: Collection[str]) -> bool:
    """Whether the choices or the default of a flag show that it is the job's, whatever its name."""
    is_named = not {*_JOB[1]}.isdisjoint(flag.names)
    names_all = len(jobs) > 1 and set(jobs) <= set(flag.choices)
    return flag.kind != OTHER and (names_all or (is_named and _names_a_job(flag, jobs)))


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdecimal()
