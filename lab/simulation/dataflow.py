"""One step as TensorFlow makes it of a graph: operations on tasks, and calls between them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

WORKER: Final = -1
"""The task that makes the step; a parameter server is its index."""


class Mark(Enum):
    """What an operation tells of when it is done."""

    READ = auto()
    """The global step was read."""
    COUNT = auto()
    """The global step was raised by one."""


@dataclass(slots=True)
class Operation:
    """Something that a task does as soon as all that it needs is there.

    Attributes:
        task: `WORKER`, or the index of a parameter server.
        cpu_s: CPU seconds.
        computes: Whether it is the gradients of a batch, which cost what the worker makes of them.
        mark: What it tells of.
        takes: A pool, and how much it waits for before it begins.
        gives: A pool, and how much it puts in when it is done.
        calls: What it hands on: (operation, bytes, calls).
        needs: From how many it waits for something.
    """

    task: int
    cpu_s: float = 0.0
    computes: bool = False
    mark: Mark | None = None
    takes: tuple[Hashable, int] | None = None
    gives: tuple[Hashable, int] | None = None
    calls: list[tuple[int, float, float]] = field(default_factory=list)
    needs: int = 0


class Dataflow:
    """The operations of a step.

    Attributes:
        operations: All of them, by number.
        first: The one that begins it.
        last: The one with which it has been made; some may tidy up afterwards.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.first = self.last = 0

    def add(self, operation: Operation) -> int:
        """Add an operation; its number."""
        self.operations.append(operation)
        return len(self.operations) - 1

    def hand(self, source: int, target: int, size: float = 0.0, calls: float = 1.0) -> None:
        """Let one operation wait for another.

        Args:
            source: The one that is waited for.
            target: The one that waits.
            size: Bytes that go from one to the other.
            calls: What it takes where they are on two tasks: one remote call for a tensor, half of
                one for a request or an answer alone.
        """
        self.operations[source].calls.append((target, size, calls))
        self.operations[target].needs += 1

    def remote(self) -> list[tuple[int, int, float, float]]:
        """What goes from a task to another: (from, to, bytes, calls)."""
        return [
            (operation.task, self.operations[target].task, size, calls)
            for operation in self.operations
            for target, size, calls in operation.calls
            if self.operations[target].task != operation.task
        ]
