"""All commands, by the groups of `lab --help`.

Each command is the function `command` in the module `lab.verbs.NAME`. The module's docstring
has its notes and examples. This module imports almost nothing, so that `lab --help` is fast.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Final

from lab.base.console import with_command_name
from lab.base.text import wrapped

EVERYDAY: Final = "Everyday commands"
"""The heading of the commands that `lab` without arguments lists, too."""

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    EVERYDAY: {
        "run": "train an experiment and collect every task's output",
        "runs": "list the runs, and collect those that a dead client left",
        "show": "print the results of a run",
        "compare": "compare runs: settings, results, differences and ratios",
        "report": "write one page with the figures and tables of one or several runs",
        "doctor": "check this host and suggest fixes",
    },
    "Train": {
        "experiments": "list the experiments, or the flags of one",
        "sweep": "run an experiment at every point of a grid, and test for trends",
        "reproduce": "run the trainings that a book or a blog describes, and check its claims",
        "simulate": "predict the speed of a training with more workers",
        "data": "write MNIST as a TFRecord file, for a printed program",
    },
    "Follow and control a run": {
        "attach": "follow and collect a run, or show one that has ended again",
        "cancel": "stop the tasks of a run",
        "fault": "inject a fault: kill, pause or slow a task, disconnect or slow a node",
        "logs": "print the output of the programs of a run, or of an environment",
    },
    "Look at results": {
        "export": "write a run to one file",
        "import": "read runs from such files into the run store",
    },
    "Manage environments": {
        "up": "boot an environment; its tasks wait for runs",
        "down": "collect the runs of an environment, then remove it",
        "ps": "list all environments, or the tasks of one and the status of its newest run",
        "shell": "open a shell in the container or node of a task",
        "backends": "list the backends, whether they can be used here, and their own options",
    },
    "Configure the cluster": {
        "gpus": "list the GPUs of this host, and the task that holds each",
        "init": "write a project with a config for this host",
        "render": "write compose.yaml, or a batch script, from the cluster config",
        "validate": "check a cluster config, and report its errors",
        "build": "build the image of the tasks",
    },
    "Learn and teach": {
        "check": "check the stages of a lesson by your runs and answers",
        "restore": "put the project back to where a stage of a lesson ends",
        "class": "run a class: JupyterLab in a container for each seat",
    },
    "Set up the command line": {
        "completion": "print the completion script of a shell",
    },
}
"""Heading of a group to its commands, each with its summary."""

COMMANDS: Final[Mapping[str, str]] = {
    name: summary for group in GROUPS.values() for name, summary in group.items()
}

_MARGIN: Final = 5  # blanks before and between two columns
_LEAST: Final = 20  # the least width of the right column

_TITLE: Final = "lab: one host as a pseudo-cluster for distributed training"

_GENERAL: Final = {
    "COMMAND --help": "print the usage and examples of one command",
    "--debug": "print the traceback of an error",
    "--version": "print the version, and where lab is from",
}


def overview() -> str:
    """Return what `lab` without arguments prints: the everyday commands."""
    return "\n".join(
        [
            f"{_TITLE}\n",
            *columns(GROUPS[EVERYDAY].items()),
            with_command_name(
                "\nStart with `lab run async --epochs 2`. All commands: `lab --help`."
            ),
        ]
    )


def full_help() -> str:
    """Return what `lab --help` prints: every command."""
    lines = [_TITLE, "", "usage: lab COMMAND [FLAGS]"]
    width = max(map(len, _GENERAL))
    for heading, rows in (*GROUPS.items(), ("General", _GENERAL)):
        lines += ["", f"{heading}:", *columns(rows.items(), width)]
    return "\n".join(lines)


def line_width() -> int:
    """Return the maximum length of a line on stdout; a pipe has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize


def columns(rows: Iterable[tuple[str, str]], width: int = 0) -> list[str]:
    """Return indented lines of two columns; the left one has at least `width` characters.

    On a terminal, the right column continues on further lines. A pipe gets one line for each row.
    """
    rows = list(rows)
    width = max([width, *(len(left) for left, _ in rows)])
    room = line_width()
    blank = " " * (width + _MARGIN)
    lines = []
    for left, right in rows:
        first, *more = wrapped(right, max(_LEAST, room - len(blank)))
        lines.append(f"  {left.ljust(width)}   {first}".rstrip())
        lines += [blank + line for line in more]
    return lines
