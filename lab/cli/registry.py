"""All commands, by the groups of `lab --help`.

Each command is `command` in the module of its name in `lab.cli.commands`. The module's docstring
has its notes and examples. This module imports next to nothing: `lab --help` must answer at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Train and look at it": {
        "run": "train an experiment and collect every task's output",
        "attach": "follow a run whose client has died, and collect it",
        "cancel": "ask the tasks of a run to end",
        "fault": "inject a fault: kill, pause or slow a task, cut off or slow a node",
        "show": "print the table of a run from its files",
        "runs": "list the collected runs",
        "compare": "runs side by side: how they were made, what came out, difference and ratio",
        "tensorboard": "show runs in TensorBoard, served to this machine alone",
        "report": "one page with the figures and tables of one run, or of several",
        "predict": "test a run's saved model: its accuracy, some digits, an image of your own",
        "collect": "collect what is still on the run volumes",
        "data": "write MNIST as a file that a printed program reads",
        "sweep": "run an experiment at every point of a grid, and test for trends",
        "reproduce": "run what a book or a blog describes, and check each of its claims",
        "simulate": "predict the speed of a training with more workers, or on another box",
        "experiments": "the experiments and the flags of their programs",
        "logs": "the lines that programs printed, of a run or of an environment",
    },
    "Keep an environment up": {
        "up": "boot the environment: every task waits for a run",
        "down": "collect what is missing, then remove the environment",
        "ls": "the environments that are up, on every backend",
        "ps": "the tasks of an environment, and the status of its newest run",
        "shell": "open a shell where a task runs",
    },
    "Describe the cluster": {
        "gpus": "the GPUs of this box, and which task holds each",
        "init": "write a cluster description for this box",
        "render": "write docker-compose.yml from the cluster description",
        "validate": "check a cluster description: all faults at once",
        "schema": "the JSON Schema of the cluster description",
        "build": "build the image of the tasks",
        "doctor": "check this box and suggest fixes",
    },
    "Set up the command line": {
        "completion": "print the script by which a shell completes lab's command lines",
    },
}
"""From the heading of a group to its commands and what each does, in one line."""

COMMANDS: Final[Mapping[str, str]] = {
    name: summary for group in GROUPS.values() for name, summary in group.items()
}

BASIC: Final = ("run", "show", "runs", "up", "down")
"""The commands that `lab` alone shows."""

_TITLE: Final = "lab: one box as a pseudo-cluster for distributed TensorFlow"

_EVERYWHERE: Final = {
    "COMMAND --help": "usage and examples of one command",
    "--debug": "show the traceback of an error",
    "--version": "the version",
}


def overview() -> str:
    """What `lab` alone prints: the basic commands."""
    return "\n".join(
        [
            f"{_TITLE}\n",
            *columns([(name, COMMANDS[name]) for name in BASIC]),
            "\nBegin with `lab run async --epochs 2`. All commands: `lab --help`.",
        ]
    )


def full_help() -> str:
    """What `lab --help` prints: every command."""
    lines = [_TITLE, "", "usage: lab COMMAND [FLAGS]"]
    width = max(map(len, _EVERYWHERE))
    for heading, rows in (*GROUPS.items(), ("Everywhere", _EVERYWHERE)):
        lines += ["", f"{heading}:", *columns(rows.items(), width)]
    return "\n".join(lines)


def columns(rows: Iterable[tuple[str, str]], width: int = 0) -> list[str]:
    """Lines of two columns, indented; the left one has `width` characters at least."""
    rows = list(rows)
    width = max([width, *(len(left) for left, _ in rows)])
    return [f"  {left.ljust(width)}   {right}".rstrip() for left, right in rows]
