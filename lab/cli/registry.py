"""All commands, by the groups of `lab --help`.

Each command is the function `command` in the module `lab.cli.commands.NAME`. The module's docstring
has its notes and examples. This module imports almost nothing, so that `lab --help` is fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "Train, and inspect runs": {
        "run": "train an experiment and collect every task's output",
        "attach": "follow and collect a run whose client has stopped",
        "cancel": "stop the tasks of a run",
        "fault": "inject a fault: kill, pause or slow a task, disconnect or slow a node",
        "show": "print the results of a run",
        "runs": "list the collected runs",
        "compare": "compare runs: settings, results, differences and ratios",
        "tensorboard": "show runs in TensorBoard, on 127.0.0.1 only",
        "report": "write one page with the figures and tables of one or several runs",
        "predict": "test a run's saved model on the test set, or on an image of your own",
        "collect": "copy missing output from the run volumes to the run store",
        "data": "write MNIST as a TFRecord file, for a printed program",
        "sweep": "run an experiment at every point of a grid, and test for trends",
        "reproduce": "run the trainings that a book or a blog describes, and check its claims",
        "simulate": "predict the speed of a training with more workers, or on another host",
        "experiments": "list the experiments, or the flags of one",
        "logs": "print the output of the programs of a run, or of an environment",
    },
    "Manage environments": {
        "up": "boot an environment; its tasks wait for runs",
        "down": "collect the runs of an environment, then remove it",
        "ls": "list the environments of every backend",
        "ps": "list the tasks of an environment, and the status of its newest run",
        "shell": "open a shell in the container or node of a task",
    },
    "Configure the cluster": {
        "gpus": "list the GPUs of this host, and the task that holds each",
        "init": "write a cluster config for this host",
        "render": "write docker-compose.yml from the cluster config",
        "validate": "check a cluster config, and report all its errors",
        "schema": "print the JSON Schema of the cluster config",
        "build": "build the image of the tasks",
        "doctor": "check this host and suggest fixes",
    },
    "Set up the command line": {
        "completion": "print the completion script of a shell",
    },
}
"""Heading of a group to its commands, each with its summary."""

COMMANDS: Final[Mapping[str, str]] = {
    name: summary for group in GROUPS.values() for name, summary in group.items()
}

BASIC: Final = ("run", "show", "runs", "up", "down")
"""The commands that `lab` without arguments lists."""

_TITLE: Final = "lab: one host as a pseudo-cluster for distributed TensorFlow"

_GENERAL: Final = {
    "COMMAND --help": "print the usage and examples of one command",
    "--debug": "print the traceback of an error",
    "--version": "print the version",
}


def overview() -> str:
    """Return what `lab` without arguments prints: the basic commands."""
    return "\n".join(
        [
            f"{_TITLE}\n",
            *columns([(name, COMMANDS[name]) for name in BASIC]),
            "\nStart with `lab run async --epochs 2`. All commands: `lab --help`.",
        ]
    )


def full_help() -> str:
    """Return what `lab --help` prints: every command."""
    lines = [_TITLE, "", "usage: lab COMMAND [FLAGS]"]
    width = max(map(len, _GENERAL))
    for heading, rows in (*GROUPS.items(), ("General", _GENERAL)):
        lines += ["", f"{heading}:", *columns(rows.items(), width)]
    return "\n".join(lines)


def columns(rows: Iterable[tuple[str, str]], width: int = 0) -> list[str]:
    """Return indented lines of two columns; the left one has at least `width` characters."""
    rows = list(rows)
    width = max([width, *(len(left) for left, _ in rows)])
    return [f"  {left.ljust(width)}   {right}".rstrip() for left, right in rows]
