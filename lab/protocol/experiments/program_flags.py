"""The flags of training programs: parsers of values, and the flags that MNIST programs share.

The registry of experiments uses them to check flags before a run starts. `lab.task.sdk.flags` uses
them for the programs' own parsers.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.base.converters import boolean, one_of, whole
from lab.base.variables import LAB_GPU_MEMORY_FRACTION

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?):([0-9]{1,5})")
_LAST_PORT: Final = 65535


positive: Final = whole(1)


def _number(what: str, fits: Callable[[float], bool]) -> Callable[[str], float]:
    """Return a parser of numbers that fit; NaN fits nowhere."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not fits(value):
            raise ValueError(what)
        return value

    return parse


real: Final = _number("a number", math.isfinite)
rate: Final = _number("a positive number", lambda value: 0 < value < math.inf)
amount: Final = _number("a number from 0", lambda value: 0 <= value < math.inf)
share: Final = _number("a share, above 0 and at most 1", lambda value: 0 < value <= 1)


def hosts(text: str) -> list[str]:
    """Parse a list of `host:port`, separated by commas."""
    members = text.split(",")
    for member in members:
        match = _HOST.fullmatch(member)
        if match is None or not 0 < int(match[3]) <= _LAST_PORT:
            raise argparse.ArgumentTypeError(f"{member!r} is not host:port")
    return members


@dataclass(frozen=True, slots=True)
class ProgramFlag:
    """One flag of a training program, described so that `lab` can check it before the start.

    Attributes:
        help: The help text, one line.
        parse: Parses a value as the program does; a ValueError names what is expected.
        is_switch: Whether the value may be omitted.
        default: The default value; None if it depends on the program.
    """

    help: str
    parse: Callable[[str], object] = str
    is_switch: bool = False
    default: object = None


TRAINING_FLAGS: Final[Mapping[str, ProgramFlag]] = {
    "ps_strategy": ProgramFlag(
        "variables on several ps: round_robin or greedy (least bytes)",
        one_of("round_robin", "greedy"),
        default="round_robin",
    ),
    "gpu_memory_fraction": ProgramFlag(
        "share of each GPU's memory that a task takes (default: what it needs)", share
    ),
    "model": ProgramFlag("the model: softmax or mlp", one_of("softmax", "mlp"), default="softmax"),
    "epochs": ProgramFlag("passes over the training images", positive, default=50),
    "global_steps": ProgramFlag(
        "stop at this global step instead of after epochs", whole(0), default=0
    ),
    "batch_size": ProgramFlag("images in a batch", positive, default=100),
    "learning_rate": ProgramFlag(
        "step size of the gradient descent (default: the model's own)", rate
    ),
    "seed": ProgramFlag(
        "seed of initial weights and batches (`lab run` draws one)", whole(0), default=0
    ),
    "data_dir": ProgramFlag("your own data, as four IDX files", Path),
    "record_every": ProgramFlag("local steps between two records", positive, default=100),
    "log_device_placement": ProgramFlag(
        "print where each operation runs", boolean, is_switch=True, default=False
    ),
    "checkpoint_dir": ProgramFlag(
        "directory of the checkpoints, as the task sees it (default: in the run)", Path
    ),
    "checkpoint_every": ProgramFlag("seconds between two checkpoints", rate, default=60),
}
"""The flags that all MNIST programs share."""

PROGRAM_FLAGS: Final[Mapping[str, ProgramFlag]] = {
    **TRAINING_FLAGS,
    "compare_steps": ProgramFlag("steps to compare with a single process", positive, default=100),
    "steps_per_call": ProgramFlag("steps per call", positive, default=110),
    "one_core": ProgramFlag("each task on one core: true or false", boolean, default=True),
    "replicas_to_aggregate": ProgramFlag("gradients per update", positive),
    "cpu_replicas": ProgramFlag("replicas if there is no GPU", positive, default=2),
    "summary_every": ProgramFlag(
        "steps between two summaries, and between two lines", positive, default=10
    ),
    "records": ProgramFlag("path of the TFRecords, as the task sees it"),
    "average_every": ProgramFlag(
        "local steps between two means of the parameters", positive, default=10
    ),
    "pause": ProgramFlag("seconds that a worker holds its gradients", amount, default=0.03),
    "steps": ProgramFlag("steps of the gradient descent", positive, default=200),
    "eval_every": ProgramFlag(
        "global steps between two tests by the chief (default: one test at the end)",
        whole(0),
        default=0,
    ),
}
"""`TRAINING_FLAGS`, and the flags that only some of lab's programs have."""

OF_VARIABLES: Final = {"gpu_memory_fraction": LAB_GPU_MEMORY_FRACTION}
"""Flags whose default is an environment variable; its value is parsed like one of the flag."""


def flags(*names: str, **others: ProgramFlag) -> Mapping[str, ProgramFlag]:
    """Return flags of `PROGRAM_FLAGS` by name, and those that only one program has."""
    return {name: PROGRAM_FLAGS[name] for name in names} | others
