"""The flags of training programs: how a value is read, and what all MNIST programs share.

The registry of experiments checks flags by them before anything starts; `lab.task.sdk.flags` makes
the programs' parsers of them.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


TRAINING_GROUPS: Final[Mapping[str, Mapping[str, ProgramFlag]]] = {
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
    name: flag for group in TRAINING_GROUPS.values() for name, flag in group.items()
}
"""The flags that all MNIST programs share."""

OF_VARIABLES: Final = {"gpu_memory_fraction": "LAB_GPU_MEMORY_FRACTION"}
"""Flags whose default an environment variable holds, as a text that is checked like a given one."""
