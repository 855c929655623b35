"""The flags that every training program has: who is who in the cluster, and how to train.

Where the cluster's flags are not given, `TF_CONFIG` says who is who.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Never

JOBS: Final = ("ps", "worker")

_SHORT: Final = {"ps": ("--ps",), "worker": ("--worker",)}
"""Further names of the hosts' flags, as the books have them."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?):([0-9]{1,5})")
_LAST_PORT: Final = 65535
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def whole(text: str) -> int:
    """A whole number from 0."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1."""
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def rate(text: str) -> float:
    """A positive, finite number."""
    if not 0 < (value := _number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def amount(text: str) -> float:
    """A finite number from 0."""
    if not 0 <= (value := _number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return value


def share(text: str) -> float:
    """A part of a whole: above 0, at most 1."""
    value = rate(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than 1")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def boolean(text: str) -> bool:
    """`true` or `false`, as TensorFlow's own flags were written."""
    if text.lower() not in _BOOLEANS:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _BOOLEANS[text.lower()]


@dataclass(frozen=True)
class OneOf:
    """A type that takes exactly these words; shell completion of `lab run` shows them."""

    choices: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """The word itself."""
        if text not in self.choices:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(self.choices)}")
        return text


def one_of(*choices: str) -> OneOf:
    """A type that takes exactly these words."""
    return OneOf(choices)


def hosts(text: str) -> list[str]:
    """A list of `host:port`, separated by commas."""
    members = text.split(",")
    for member in members:
        match = _HOST.fullmatch(member)
        if match is None or not 0 < int(match[3]) <= _LAST_PORT:
            raise argparse.ArgumentTypeError(f"{member!r} is not host:port")
    return members


@dataclass(frozen=True, slots=True)
class ProgramFlag:
    """One flag of a training program, so that it can be checked before anything starts.

    Attributes:
        help: What it does, in one line.
        parse: Reads a value as the program will; raises ArgumentTypeError.
        is_switch: Whether it may stand without a value.
        default: What holds where it is not given; None: that depends on the program.
    """

    help: str
    parse: Callable[[str], object] = str
    is_switch: bool = False
    default: object = None


_TRAINING: Final[Mapping[str, Mapping[str, ProgramFlag]]] = {
    "where things live": {
        "ps_strategy": ProgramFlag(
            "variables on several ps: round_robin or greedy (least bytes)",
            one_of("round_robin", "greedy"),
            default="round_robin",
        ),
        "gpu_memory_fraction": ProgramFlag(
            "share of each GPU's memory that a task takes (default: what it needs)", share
        ),
    },
    "the training": {
        "model": ProgramFlag(
            "the model: softmax or mlp", one_of("softmax", "mlp"), default="softmax"
        ),
        "epochs": ProgramFlag("passes over the training images", positive, default=50),
        "global_steps": ProgramFlag("stop at this global step, not by epochs", whole, default=0),
        "batch_size": ProgramFlag("images in a batch", positive, default=100),
        "learning_rate": ProgramFlag(
            "step width of the gradient descent (default: the model's own)", rate
        ),
        "seed": ProgramFlag(
            "seed of initial weights and batches (`lab run` draws one)", whole, default=0
        ),
        "data_dir": ProgramFlag("your own data, as four IDX files", Path),
    },
    "what it tells and keeps": {
        "record_every": ProgramFlag(
            "local steps from one record to the next", positive, default=100
        ),
        "log_device_placement": ProgramFlag(
            "print where each operation runs", boolean, is_switch=True, default=False
        ),
        "checkpoint_dir": ProgramFlag(
            "where checkpoints are kept, as a task sees it (default: with the run)", Path
        ),
        "checkpoint_every": ProgramFlag("seconds between two checkpoints", rate, default=60),
    },
}
TRAINING_FLAGS: Final[Mapping[str, ProgramFlag]] = {
    name: flag for group in _TRAINING.values() for name, flag in group.items()
}
"""The flags that all MNIST programs share."""

_OF_VARIABLES: Final = {"gpu_memory_fraction": "LAB_GPU_MEMORY_FRACTION"}
"""Flags whose default an environment variable holds, as a text that is checked like a given one."""


def task_flags(
    description: str, jobs: Sequence[str] = JOBS, optional: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Make a parser with the flags that tell who is who; a program adds its own.

    Args:
        description: What `--help` says of the program.
        jobs: The jobs that its cluster has.
        optional: Those among them that it can do without.

    Returns:
        The parser; give it to `parse`.
    """
    parser = Parser(description=description, allow_abbrev=False)
    parser.jobs, parser.optional = tuple(jobs), frozenset(optional)
    cluster = parser.add_argument_group("the cluster (default: as TF_CONFIG says)")
    cluster.add_argument("--job_name", choices=parser.jobs, help="this task's job")
    cluster.add_argument("--task_index", "--task_id", type=whole, help="its index in the job")
    for job in parser.jobs:
        names = (f"--{job}_hosts", *_SHORT.get(job, ()))
        cluster.add_argument(
            *names, type=hosts, metavar="HOST:PORT,…", help=f"the tasks of job {job}"
        )
    return parser


def training_flags(
    description: str, jobs: Sequence[str] = JOBS, optional: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """The same with the flags that all MNIST programs share; see `task_flags`."""
    parser = task_flags(description, jobs, optional)
    for heading, flags in _TRAINING.items():
        group = parser.add_argument_group(heading)
        for name, flag in flags.items():
            is_known = flag.default is not None and not flag.is_switch
            group.add_argument(
                f"--{name}",
                default=os.environ.get(_OF_VARIABLES.get(name, "")) or flag.default,
                help=flag.help + (f" (default: {flag.default})" if is_known else ""),
                **_reading(flag),
            )
    return parser


def _reading(flag: ProgramFlag) -> dict[str, Any]:
    if isinstance(flag.parse, OneOf):
        return {"choices": flag.parse.choices}
    return {"type": flag.parse, **({"nargs": "?", "const": True} if flag.is_switch else {})}


def parse(
    parser: argparse.ArgumentParser,
    arguments: list[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> argparse.Namespace:
    """Parse the flags, take what is not given from `TF_CONFIG`, and see that the cluster is whole.

    Args:
        parser: What `training_flags` made, with the program's own flags.
        arguments: The command line; the process's own by default.
        environment: Where `TF_CONFIG` stands; the process's own by default.

    Returns:
        The flags; `ps_hosts`, `worker_hosts` and so on are lists of `host:port`, empty for a job
        that has no task.

    Raises:
        SystemExit: A flag is wrong: one line on stderr, exit code 2. Or `--help` was asked.
    """
    flags = parser.parse_args(arguments)
    jobs, optional = _jobs_of(parser)
    names = ["job_name", "task_index", *(f"{job}_hosts" for job in jobs if job not in optional)]
    missing = [name for name in names if getattr(flags, name) is None]
    text = (os.environ if environment is None else environment).get("TF_CONFIG")
    if missing and not text:
        parser.error(f"--{missing[0]} is missing; give it, or set TF_CONFIG")
    if missing and text:
        try:
            found = _from_tf_config(text, jobs, optional)
        except (ValueError, argparse.ArgumentTypeError) as error:
            parser.error(f"TF_CONFIG: {error}")
        for name, value in found.items():
            if getattr(flags, name) is None:
                setattr(flags, name, value)
    members = {job: getattr(flags, f"{job}_hosts") or [] for job in jobs}
    for job, its in members.items():
        setattr(flags, f"{job}_hosts", its)
    _check_whole(parser, flags, members)
    return flags


def _check_whole(
    parser: argparse.ArgumentParser, flags: argparse.Namespace, cluster: Mapping[str, list[str]]
) -> None:
    """See that this task is one of the cluster's, and that no two share an address."""
    members = cluster[flags.job_name]
    # A job that the cluster can do without may have no address: nobody calls it.
    is_called = bool(members) or flags.job_name not in _jobs_of(parser)[1]
    if is_called and flags.task_index >= len(members):
        last = len(members) - 1
        parser.error(f"--task_index: {flags.task_index}; job {flags.job_name} has 0 to {last}")
    everyone = [host for hosts in cluster.values() for host in hosts]
    for host in everyone:
        if everyone.count(host) > 1:
            parser.error(f"{host} is in the cluster twice; give each task its own port")


def _jobs_of(parser: argparse.ArgumentParser) -> tuple[tuple[str, ...], frozenset[str]]:
    assert isinstance(parser, Parser)  # noqa: S101 (narrows the type: `task_flags` made it)
    return parser.jobs, parser.optional


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line.

    Attributes:
        jobs: The jobs of the program's cluster.
        optional: Those among them that it can do without.
    """

    jobs: tuple[str, ...] = JOBS
    optional: frozenset[str] = frozenset()

    def error(self, message: str) -> Never:
        """One line on stderr, and exit code 2."""
        self.exit(2, f"error: {message}; --help lists all flags\n")


def _from_tf_config(text: str, jobs: Sequence[str], optional: Collection[str]) -> dict[str, Any]:
    """Read the cluster's flags from `TF_CONFIG`'s JSON.

    Raises:
        ValueError: It is no JSON, or not of the right shape.
        argparse.ArgumentTypeError: A value in it is wrong.
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
        raise ValueError(f"it names no {plural} {known}, or no task") from error
    if others or job_name not in jobs:
        raise ValueError(f"this program knows the {plural} {known} only")
    return {
        "job_name": job_name,
        "task_index": whole(task_index),
        **{f"{job}_hosts": hosts(text) for job, text in members.items()},
    }
