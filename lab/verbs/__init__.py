"""The verbs of `lab`, one module and one function each: `lab run` and `lab.run` are `run.py`.

They import every room below, and nothing of the command line. Begin with `run.py`: its signature
declares the flags, its docstring is the help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EVERYDAY: Final = "Everyday commands"
"""The heading of the commands that `lab` without arguments lists, too."""

GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    EVERYDAY: {
        "run": "train an experiment and collect every task's output",
        "runs": "list the runs, and collect those whose client died",
        "show": "print the results of a run",
        "compare": "compare runs: settings, results, differences and ratios",
        "report": "write one page with the figures and tables of one or more runs",
        "doctor": "check this host and suggest fixes",
    },
    "Train": {
        "experiments": "list the experiments, or the flags of one",
        "sweep": "run an experiment at every point of a grid, and test for trends",
        "reproduce": "repeat the trainings of a book or a blog, and check its claims",
        "simulate": "predict the speed of a training with more workers",
        "data": "write MNIST as a TFRecord file, for a printed program",
    },
    "Follow and control a run": {
        "attach": "follow and collect a run, or replay one that has ended",
        "cancel": "stop the tasks of a run",
        "fault": "inject a fault: kill, pause or slow a task, disconnect or slow a node",
        "logs": "print the output of the programs of a run, or of an environment",
    },
    "Look at results": {
        "export": "export a run to an archive",
        "import": "import archives of `lab export` into the run store",
    },
    "Manage environments": {
        "up": "boot an environment; its tasks wait for runs",
        "down": "collect the runs of an environment, then remove it",
        "ps": "list all environments, or the tasks of one and the status of its newest run",
        "shell": "open a shell in the container or node of a task",
        "backends": "list the backends, their own options, and whether they work here",
    },
    "Configure the cluster": {
        "gpus": "list the GPUs of this host, and which task holds each",
        "init": "write a project with a config for this host",
        "render": "write compose.yaml or a batch script from the cluster config",
        "validate": "check a cluster config, and report its errors",
        "build": "build the image of the tasks",
    },
    "Learn and teach": {
        "check": "check your progress in a lesson from your runs and answers",
        "restore": "restore the project to the end of a lesson stage",
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

TAKEN: Final = ("backends", "class", "import")
"""The commands whose names Python has, or a room of `lab`; in Python, theirs end with `_`."""


def python_name(command: str) -> str:
    """Return the name of a command in Python: that of its module, and of the function in it."""
    return f"{command}_" if command in TAKEN else command
