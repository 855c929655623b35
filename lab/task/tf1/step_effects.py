"""Whether a step that one task refused has changed nothing on any other task.

TensorFlow splits a step by tasks and sends each task its part. A task that refuses its part runs
none of it. The other parts begin at once, and go on until they need something from that task. So
the step has changed nothing if each operation with an effect waits for all other tasks.

An operation waits for a task if a path of inputs leads to it from an operation of that task which
stays in the graph. TensorFlow's optimizers may remove a constant, an arithmetic operation or an
identity, and the wait with it. They never remove what holds a state, nor what the program feeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Operation(NamedTuple):
    """One operation of a step, or one fed value.

    Attributes:
        task: Where it runs, `ps-0`; None if that is not known.
        has_effect: Whether something differs after the step if it runs twice.
        stays: Whether TensorFlow's optimizers cannot remove it.
        inputs: Names of the operations that it waits for, all of which are in the step.
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
        operation: Its name.
        task: Where it runs; None if that is not known.
        other: A task whose part it does not wait for, or the name of an operation without a known
            task; None if it is unknown what the operation does.
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
    # An operation without a known task may be alone on a task of its own.
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
    """For each operation the tasks that it waits for, its own among them if it stays there."""
    waits: dict[str, frozenset[str]] = {}
    # Without recursion: a chain of operations can be longer than Python's stack.
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
