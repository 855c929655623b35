"""Faults to inject into a run: their notation, and when each is due.

One fault is one line::

    KIND[:HOW] TARGET [WHEN]

    kill                                SIGKILL to the target's program
    stop                                SIGTERM to the program
    pause:10s                           the program is paused for this time
    slow:0.3[,30s]                      the program runs for only this share of the time
    link:rate=10mbit,delay=20ms[,30s]   the node's outgoing traffic is slowed and delayed
    cut:5s                              the node has no network

A target is a task, or a node (all of its tasks). `link` and `cut` act on a node; the target names
the node, or one of its tasks. A fault begins with the training: at the first step. Or it begins
`after 500 steps` of the run, `after 5s` of the run, or `at start`, when the run is submitted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from lab.base.text import suggestion
from lab.base.units import DELAY, RATE, duration_s, exact
from lab.base.units import parse as parse_amount

_STEPS: Final = re.compile(r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15}) steps?")


@dataclass(frozen=True, slots=True)
class Trigger:
    """A start time within a run; exactly one of the attributes is set.

    Attributes:
        seconds: Seconds since the run was submitted, or None.
        steps: The global step, or None.
    """

    seconds: float | None = None
    steps: int | None = None

    def __str__(self) -> str:
        if self.steps is None:
            return f"{self.seconds:g}s"
        return f"after {self.steps:,} step{'s' * (self.steps != 1)}"

    def has_come(self, elapsed_s: float, global_step: int | None) -> bool:
        """Whether the start time has passed."""
        if self.seconds is not None:
            return elapsed_s >= self.seconds
        return global_step is not None and self.steps is not None and global_step >= self.steps


def parse_trigger(text: str) -> Trigger:
    """Parse `10s`, `after 10s` or `after 20,900 steps`.

    Raises:
        ValueError: The text is not a start time; the message has an example.
    """
    moment = " ".join(text.split()).removeprefix("after ")
    if steps := _STEPS.fullmatch(moment):
        return Trigger(steps=int(steps[1].replace(",", "")))
    seconds = duration_s(moment)
    if seconds is None:
        raise ValueError(f"{text!r} is not a start time, such as 10s or `after 500 steps`")
    return Trigger(seconds=seconds)


DONE: Final = "fault: "
"""The beginning of an agent's event when a fault starts; the fault's text follows."""

OVER: Final = "fault over: "
"""The beginning of an agent's event when a fault ends."""

MAX_DURATION_S: Final = 3600.0
"""The maximum duration of a fault, in seconds."""

DEFAULT_LINK_S: Final = 30.0
"""The default duration of `link`, in seconds."""

MAX_RATE_BITS: Final = 10**12
MAX_DELAY_US: Final = 60 * 10**6
_TARGET: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")


class Kind(StrEnum):
    """The kinds of faults."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    SLOW = "slow"
    LINK = "link"
    CUT = "cut"

    @property
    def on_network(self) -> bool:
        """Whether the fault acts on a node's network, not on a program."""
        return self in {Kind.LINK, Kind.CUT}


_LINKS: Final = "link:rate=10mbit, link:delay=20ms or link:rate=10mbit,delay=20ms,30s"
_NOTATION: Final[Mapping[Kind, tuple[set[str], set[str], str]]] = {
    Kind.KILL: (set(), set(), "kill"),
    Kind.STOP: (set(), set(), "stop"),
    Kind.PAUSE: ({"seconds"}, set(), f"pause:10s, at most {MAX_DURATION_S:g}s"),
    Kind.SLOW: ({"share"}, {"seconds"}, "slow:0.3 or slow:0.3,30s"),
    Kind.LINK: ({"rate_bits", "delay_us"}, {"seconds"}, _LINKS),
    Kind.CUT: ({"seconds"}, set(), f"cut:5s, at most {MAX_DURATION_S:g}s"),
}
"""The attributes of which each kind needs one at least, those that it may have, too, and examples.
"""

_AMOUNTS: Final = {
    "rate": ("rate_bits", RATE, MAX_RATE_BITS),
    "delay": ("delay_us", DELAY, MAX_DELAY_US),
}
"""The named arguments of a link: attribute, units, and maximum in the smallest unit."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: The kind of the fault.
        target: A task or a node.
        when: The start time; None: with the training, at the first step.
        seconds: The duration; 0 for `kill` and `stop`.
        share: The share of the time for which a slowed program runs; 0 for the other kinds.
        rate_bits: The node's outgoing bits per second, or None for no limit.
        delay_us: The delay of outgoing traffic in microseconds, or None for none.
    """

    kind: Kind
    target: str
    when: Trigger | None = None
    seconds: float = 0.0
    share: float = 0.0
    rate_bits: int | None = None
    delay_us: int | None = None

    @property
    def text(self) -> str:
        """The notation of the fault; `parse` reads it back."""
        arguments = [self.action, self.target]
        if self.when is not None:
            moment = f"after {str(self.when).removeprefix('after ')}"
            arguments.append("at start" if self.when.seconds == 0 else moment)
        return " ".join(arguments)

    @property
    def action(self) -> str:
        """The notation without target and start time: `cut:5s`."""
        how: list[str] = []
        if self.kind is Kind.SLOW:
            how.append(f"{self.share:g}")
        if self.rate_bits is not None:
            how.append(f"rate={exact(self.rate_bits, RATE)}")
        if self.delay_us is not None:
            how.append(f"delay={exact(self.delay_us, DELAY)}")
        if self.seconds and not (self.kind is Kind.SLOW and self.seconds == MAX_DURATION_S):
            how.append(f"{self.seconds:.3f}".rstrip("0").rstrip(".") + "s")
        return f"{self.kind}:{','.join(how)}" if how else str(self.kind)


def parse(text: str) -> Fault:
    """Parse one fault.

    Raises:
        ValueError: The text is not a fault; the message has the error and a correct example.
    """
    arguments = text.split()
    if not arguments:
        raise ValueError("a fault is missing; write one such as pause:10s worker-1")
    name, colon, raw = arguments[0].partition(":")
    kind = _kind(name)
    values = _parse_arguments(kind, raw.split(",") if colon else [])
    if values is None:
        problem = f"{arguments[0]!r} has a missing or invalid argument"
        raise ValueError(f"{problem}; write {_NOTATION[kind][2]}")
    if len(arguments) == 1:
        raise ValueError(f"{arguments[0]!r} has no target; add a task or a node after it")
    target, rest = arguments[1], arguments[2:]
    if not _TARGET.fullmatch(target):
        raise ValueError(f"{target!r} is not a target; name a task or a node")
    return Fault(kind, target, _start_time(rest), **values)


def parse_all(text: str) -> tuple[Fault, ...]:
    """Parse several faults, separated by semicolons.

    Raises:
        ValueError: One of them is not a fault, or the text is empty.
    """
    parts = [part for part in text.split(";") if part.strip()]
    return tuple(parse(part) for part in parts or [""])


def check_target(fault: Fault, places: Mapping[str, str]) -> Fault:
    """Check the target of a fault.

    Args:
        fault: The fault as the user wrote it.
        places: The node of each task, in the order of the plan.

    Returns:
        The fault. The target of `link` and `cut` is a node.

    Raises:
        ValueError: The target does not exist; the message lists the existing targets.
    """
    if fault.target not in places and fault.target not in places.values():
        nodes = tuple(dict.fromkeys(places.values()))
        near = suggestion(fault.target, (*places, *nodes))
        targets = f"{', '.join(places)} on {', '.join(nodes)}"
        raise ValueError(f"no task or node {fault.target!r}; {near}there are {targets}")
    if fault.kind.on_network:
        fault = replace(fault, target=places.get(fault.target, fault.target))
    return fault


def concerns(fault: Fault, task: str, node: str) -> bool:
    """Whether a resolved fault acts on this task of this node."""
    return fault.target in {task, node}


def due(fault: Fault, elapsed_s: float, global_step: int | None, *, trains: bool) -> bool:
    """Whether the start time of a fault has passed.

    Args:
        fault: The fault.
        elapsed_s: Seconds since the start of the run.
        global_step: The run's global step, or None before the first step.
        trains: Whether its target has begun to make steps.
    """
    return trains if fault.when is None else fault.when.has_come(elapsed_s, global_step)


def relative_to_now(fault: Fault, elapsed_s: float) -> Fault:
    """Convert a fault's start time from seconds after now, 0 by default, to seconds of the run.

    The client injects a fault on the network itself, at once: it keeps no start time.
    """
    seconds = 0.0 if fault.when is None else fault.when.seconds
    if seconds is None or fault.kind.on_network:
        return fault
    return replace(fault, when=Trigger(seconds=round(seconds + elapsed_s, 1)))


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        kinds = ", ".join(Kind)
        raise ValueError(f"no fault {name!r}; {suggestion(name, Kind)}there are {kinds}") from None


def _parse_arguments(kind: Kind, parts: Sequence[str]) -> dict[str, Any] | None:
    """Return attributes of the fault; None if an argument is wrong, missing or given twice."""
    needed, further, _ = _NOTATION[kind]
    values = dict(map(_argument, parts))
    is_complete = not needed or bool(needed & values.keys())
    is_known = values.keys() <= needed | further and None not in values.values()
    if not is_complete or not is_known or len(values) < len(parts):
        return None
    # A slow program stays slow: the fault ends with the program.
    default_s = DEFAULT_LINK_S if kind.on_network else MAX_DURATION_S
    return {"seconds": default_s, **values} if further else values


def _argument(part: str) -> tuple[str, float | None]:
    """Return an attribute of a fault and its value, which is None if it is wrong."""
    name, equals, raw = part.partition("=")
    if equals and name in _AMOUNTS:
        attribute, units, most = _AMOUNTS[name]
        try:
            amount = parse_amount(raw, units)
        except ValueError:
            amount = 0
        return attribute, amount if 0 < amount <= most else None
    if re.fullmatch(r"0?\.[0-9]{1,3}", part):
        return "share", float(part) or None
    seconds = round(duration_s(part) or 0.0, 3)
    return "seconds", seconds if 0 < seconds <= MAX_DURATION_S else None


def _start_time(arguments: list[str]) -> Trigger | None:
    if not arguments:
        return None
    if arguments == ["at", "start"]:
        return Trigger(seconds=0.0)
    if arguments[0] != "after":
        moment = " ".join(arguments)
        raise ValueError(f"{moment!r} is not a start time; write `after 500 steps` or `after 5s`")
    return parse_trigger(" ".join(arguments[1:]))
