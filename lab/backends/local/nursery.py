"""Starts the process that imports TensorFlow once for all tasks; see `lab.task.nursery`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.backends.local.processes import environ
from lab.backends.local.state import EnvironmentRecord, Place
from lab.task import nursery
from lab.task.command import environ_of_import
from lab.tf_versions import CURRENT

_SWITCH = "LAB_LOCAL_FORK"


@dataclass(frozen=True, slots=True)
class Nursery:
    """The process, and the agents' ends of its socket pairs.

    Attributes:
        pid: Its process id; None: there is none.
        ends: Task to the agent's end.
    """

    pid: int | None = None
    ends: Mapping[str, socket.socket] = field(default_factory=dict)

    def hand_over(self, task: str) -> None:
        """The agent of this task has its end; it must be the only one."""
        if end := self.ends.get(task):
            end.close()


def open_nursery(record: EnvironmentRecord, place: Place) -> Nursery:
    """Start it, if a task of this environment may have its program forked.

    Raises:
        OSError: It could not be started.
    """
    tasks = [task for task in record.tasks if not task.gpus]
    if why_not(record.tensorflow) is not None or not tasks:
        return Nursery()
    pairs = {task.task: socket.socketpair() for task in tasks}
    theirs = [pair[1].fileno() for pair in pairs.values()]
    # What all agents have beside the inherited variables; what differs is no import's business.
    shared = dict(set.intersection(*(set(task.environ.items()) for task in record.tasks)))
    with place.output("nursery").open("ab") as output:
        process = subprocess.Popen(
            [record.interpreter, *nursery.words(theirs)],
            env=environ_of_import({**environ(), **shared}, record.tensorflow),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=theirs,
            process_group=0,
        )
    process.returncode = 0  # the supervisor reaps it, like every other process
    for _, their_end in pairs.values():
        their_end.close()
    return Nursery(process.pid, {task: pair[0] for task, pair in pairs.items()})


def why_not(tensorflow: str) -> str | None:
    """Why each program imports TensorFlow by itself; None where it is imported once."""
    if os.environ.get(_SWITCH) == "0":
        return f"{_SWITCH} is 0"
    if sys.platform != "linux":
        return f"{sys.platform} cannot show who a forked process is"
    if tensorflow != CURRENT.tensorflow:
        return f"TensorFlow {tensorflow} was not tried"
    return None
