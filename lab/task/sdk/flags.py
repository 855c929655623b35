"""Command-line flags of training programs: the cluster, this task's place in it, the training.

If the cluster's flags are not given, `parse` takes their values from `TF_CONFIG`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Never, TypeVar

from lab.base.converters import OneOf, whole
from lab.protocol.experiments.program_flags import (
    OF_VARIABLES,
    TRAINING_FLAGS,
    ProgramFlag,
    hosts,
)
from lab.protocol.experiments.registry import EXPERIMENTS

T = TypeVar("T")

JOBS: Final = ("ps", "worker")


def task_flags(
    description: str, jobs: Sequence[str] = JOBS, optional: Sequence[str] = ()
) -> Parser:
    """Make a parser with the flags that describe the cluster and this task.

    A program can add its own flags to the parser.

    Args:
        description: The program's description in `--help`.
        jobs: The jobs of the program's cluster.
        optional: The jobs that may have no tasks.

    Returns:
        The parser; pass it to `parse`.
    """
    parser = Parser(
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,  # keeps the lines of the docstring
    )
    parser.jobs, parser.optional = tuple(jobs), frozenset(optional)
    cluster = parser.add_argument_group("cluster (default: from TF_CONFIG)")
    cluster.add_argument("--job_name", choices=parser.jobs, help="this task's job")
    cluster.add_argument("--task_index", type=argument(whole(0)), help="its index in the job")
    for job in parser.jobs:
        cluster.add_argument(
            f"--{job}_hosts", type=hosts, metavar="HOST:PORT,…", help=f"the tasks of job {job}"
        )
    return parser


def experiment_flags(experiment: str, description: str) -> Parser:
    """Make a parser with the flags of `task_flags` and of an experiment in the registry.

    Experiments that share a program share its flags. A job that only some of them have is optional,
    and so is an evaluator: the tasks that train do not connect to it.

    Args:
        experiment: The experiment's name for `lab run`.
        description: The program's description in `--help`.

    Returns:
        The parser; pass it to `parse`.
    """
    program = EXPERIMENTS[experiment].program
    entries = [entry for entry in EXPERIMENTS.values() if entry.program == program]
    jobs = list(dict.fromkeys(job for entry in entries for job in entry.jobs))
    optional = [job for job in jobs if any(job not in entry.jobs for entry in entries)]
    parser = task_flags(description, jobs, [*optional, "evaluator"])
    data = {"data_dir": TRAINING_FLAGS["data_dir"]} if entries[0].has_data else {}
    flags = {name: flag for entry in entries for name, flag in entry.flags.items()} | data
    for name, flag in flags.items():
        is_known = flag.default is not None and not flag.is_switch
        parser.add_argument(
            f"--{name}",
            default=os.environ.get(OF_VARIABLES.get(name, "")) or flag.default,
            help=flag.help + (f" (default: {flag.default})" if is_known else ""),
            **_reading(flag),
        )
    return parser


def _reading(flag: ProgramFlag) -> dict[str, Any]:
    if isinstance(flag.parse, OneOf):
        return {"choices": flag.parse.choices}
    return {
        "type": argument(flag.parse),
        **({"nargs": "?", "const": True} if flag.is_switch else {}),
    }


def argument(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a parse function as a `type` of argparse, which shows what is expected."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not {error}") from error

    return read


def parse(parser: Parser, arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the flags, read missing ones from `TF_CONFIG`, and check the cluster.

    Args:
        parser: The parser of `task_flags` or `experiment_flags`.
        arguments: The command line; that of the process by default.

    Returns:
        The flags. `ps_hosts`, `worker_hosts` and so on are lists of `host:port`; the list of a job
        without tasks is empty. `cluster` has all these lists, by job.

    Raises:
        SystemExit: A flag is wrong: one line on stderr, exit code 2. Or `--help` was given.
    """
    flags = parser.parse_args(arguments)
    jobs, optional = parser.jobs, parser.optional
    names = ["job_name", "task_index", *(f"{job}_hosts" for job in jobs if job not in optional)]
    missing = [name for name in names if getattr(flags, name) is None]
    if missing:
        text = os.environ.get("TF_CONFIG")
        if not text:
            parser.error(f"--{missing[0]} is missing; give it, or set TF_CONFIG")
        try:
            parser.set_defaults(**_from_tf_config(text, jobs, optional))
        except (ValueError, argparse.ArgumentTypeError) as error:
            parser.error(f"TF_CONFIG: {error}")
        flags = parser.parse_args(arguments)
    members = {job: getattr(flags, f"{job}_hosts") or [] for job in jobs}
    for job, addresses in members.items():
        setattr(flags, f"{job}_hosts", addresses)
    _check_cluster(parser, flags, members)
    flags.cluster = members
    return flags


def _check_cluster(
    parser: Parser, flags: argparse.Namespace, cluster: Mapping[str, list[str]]
) -> None:
    """Check that this task is in the cluster, and that no two tasks share an address."""
    members = cluster[flags.job_name]
    # A task of an optional job may have no address: no other task connects to it.
    needs_address = bool(members) or flags.job_name not in parser.optional
    if needs_address and flags.task_index >= len(members):
        last = f"{flags.job_name}-{len(members) - 1}"
        parser.error(f"--task_index: {flags.task_index} is too large; the last task is {last}")
    addresses = [address for hosts in cluster.values() for address in hosts]
    for host in addresses:
        if addresses.count(host) > 1:
            parser.error(f"{host} is in the cluster twice; give each task its own port")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line.

    Attributes:
        jobs: The jobs of the program's cluster.
        optional: The jobs that may have no tasks.
    """

    jobs: tuple[str, ...] = JOBS
    optional: frozenset[str] = frozenset()

    def error(self, message: str) -> Never:
        """Print one line on stderr and exit with code 2."""
        self.exit(2, f"error: {message}; --help lists all flags\n")


def _from_tf_config(text: str, jobs: Sequence[str], optional: Collection[str]) -> dict[str, Any]:
    """Read the cluster's flags from `TF_CONFIG`'s JSON.

    Raises:
        ValueError: The text is not JSON, or lacks the cluster or the task.
        argparse.ArgumentTypeError: A value is wrong.
    """
    config = json.loads(text)
    known = " and ".join([", ".join(jobs[:-1]), jobs[-1]] if len(jobs) > 1 else jobs)
    plural = "jobs" if len(jobs) > 1 else "job"
    try:
        cluster, task = config["cluster"], config["task"]
        others = cluster.keys() - set(jobs)
        job_name, task_index = task["type"], str(task["index"])
        members = {
            job: ",".join(cluster[job]) for job in jobs if job in cluster or job not in optional
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks the {plural} {known}, or the task") from error
    if others or job_name not in jobs:
        raise ValueError(f"this program supports only the {plural} {known}")
    return {
        "job_name": job_name,
        "task_index": argument(whole(0))(task_index),
        **{f"{job}_hosts": hosts(text) for job, text in members.items()},
    }
