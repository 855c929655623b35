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

TAKEN: Final = ("backends", "class", "import")
"""The commands whose names Python has, or a room of `lab`; in Python, theirs end with `_`."""


def python_name(command: str) -> str:
    """Return the name of a command in Python: that of its module, and of the function in it."""
    return f"{command}_" if command in TAKEN else command
