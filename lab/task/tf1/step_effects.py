"""Check whether a step that one task refused has changed nothing on the other tasks.

TensorFlow splits a step by tasks and sends each task its part. A task that refuses its part runs
nothing of it. The other parts begin at once, and run until they need data from that task. So the
step has changed nothing if each operation with an effect waits for all other tasks.

An operation waits for a task if a path of inputs leads to it from an operation of that task that
stays in the graph. TensorFlow's optimizers may remove a constant, an arithmetic operation or an
identity, and with it the wait. They never remove operations with a state, or fed placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Operation(NamedTuple):
    """One operation of a step, or one fed value.

    Attributes:
        task: The task on which it runs, such as `ps-0`; None if unknown.
        has_effect: Whether a second execution changes the result of the step.
        stays: Whether TensorFlow's optimizers cannot remove it.
        inputs: Names of the operations that it waits for; all of them are in the step.
        is_opaque: Whether it runs a function, and so operations that are not described here.
    """

    task: str | None
    has_effect: bool = False
    stays: bool = False
    inputs: tuple[str, ...] = ()
    is_opaque: bool = False


class Doubt(NamedTuple):
    """An effect that may have happened although the step was refused.

    Attributes:
        operation: The operation's name.
        task: The task on which it runs; None if unknown.
        other: A task whose part it does not wait for, or the name of an operation on an unknown
            task; None if the operation's effect is unknown.
    """

    operation: str
    task: str | None
    other: str | None

    def __str__(self) -> str:
        where = "an unknown task" if self.task is None else self.task
        if self.other is None:
            return f"{self.operation} on {where} runs a function, and may have run"
        return f"{self.operation} on {where} may have run: it does not wait for {self.other}"


def doubt_of(step: Mapping[str, Operation]) -> Doubt | None:
    """Find an effect that does not wait for every other task; None proves that there is none.

    Args:
        step: All operations that the step runs, by name, without cycles.
    """
    # An operation on an unknown task may be the only operation of a further task.
    place = {name: each.task or f"the unknown task of {name}" for name, each in step.items()}
    tasks = set(place.values())
    waits = _waits(step, place)
    for name, each in step.items():
        if each.is_opaque:
            return Doubt(name, each.task, None)
        missing = tasks - waits[name] - {place[name]} if each.has_effect else set()
        if missing:
            return Doubt(name, each.task, min(missing))
    return None


def _waits(step: Mapping[str, Operation], place: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """Return the tasks that each operation waits for; its own task is included if it stays."""
    waits: dict[str, frozenset[str]] = {}
    # There is no recursion: a chain of operations can be longer than Python's stack.
    stack = list(step)
    while stack:
        name = stack[-1]
        open_inputs = [each for each in step[name].inputs if each not in waits]
        if name not in waits and open_inputs:
            stack += open_inputs
            continue
        stack.pop()
        own = {place[name]} if step[name].stays else set()
        waits[name] = frozenset(own).union(*(waits[each] for each in step[name].inputs))
    return waits
