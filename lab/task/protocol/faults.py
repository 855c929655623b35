"""Faults that are done to a run on purpose: how they are written, and when each is due.

One fault is one line::

    KIND[:HOW] TARGET [WHEN] [seed N]

    kill                                SIGKILL to the target's program
    stop                                SIGTERM to it
    pause:10s                           it stands still for so long
    slow:0.3[,30s]                      it runs for that share of the time only
    link:rate=10mbit,delay=20ms[,30s]   what the node sends is slowed and delayed
    cut:5s                              the node is off the network

A target is a task, a node (all of its tasks) or `random`; `link` and `cut` act on a node, be it
named by itself or by one of its tasks. A fault comes at once, `after 500 steps` of the run, `after
5s` of it, or `at random [between 0s 20s]`. What is random is drawn once, by `resolve`, from a seed
that the fault then carries; agents take nothing that is still random.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final

from lab.task.protocol.trigger import Trigger, parse_duration, parse_trigger
from lab.task.text import suggestion

DONE: Final = "fault: "
"""How an agent's event begins once a fault is done; the fault's text follows."""

OVER: Final = "fault over: "
"""The same for the moment at which it holds no longer."""

RANDOM: Final = "random"
"""The target that is drawn."""

LONGEST_S: Final = 3600.0
"""No fault holds for longer, in seconds."""

LASTING_S: Final = 30.0
"""How long `slow` and `link` hold where nobody says, in seconds."""

BETWEEN_S: Final = (0.0, 20.0)
"""When a fault comes `at random`, in seconds of the run."""

MAX_SEED: Final = 2**31

_RATES: Final = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_DELAYS: Final = {"us": 1, "ms": 10**3, "s": 10**6}
_MAX_RATE_BITS: Final = 10**12
_MAX_DELAY_US: Final = 60 * 10**6
_TARGET: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")
_TIMES: Final = "`after 500 steps`, `after 5s` or `at random between 0s 20s`"


class Kind(StrEnum):
    """What is done."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"
    SLOW = "slow"
    LINK = "link"
    CUT = "cut"

    @property
    def on_network(self) -> bool:
        """Whether it acts on a node's network, and not on a program."""
        return self in {Kind.LINK, Kind.CUT}


_LIKE: Final[Mapping[Kind, str]] = {
    Kind.KILL: "kill",
    Kind.STOP: "stop",
    Kind.PAUSE: "pause:10s",
    Kind.SLOW: "slow:0.3 or slow:0.3,30s",
    Kind.LINK: "link:rate=10mbit, link:delay=20ms or link:rate=10mbit,delay=20ms,30s",
    Kind.CUT: "cut:5s",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: What is done.
        target: A task, a node, or `random`.
        when: The moment at which it is due; None: at once, or `between`.
        between: Seconds of the run between which that moment is to be drawn, or None.
        seconds: How long it holds; 0 for what is done once.
        share: Of the time, for which a slowed program runs; 0 for the other kinds.
        rate_bits: Bits per second that a node may send, or None for no limit.
        delay_us: Microseconds that what it sends is held back, or None for none.
        seed: What random parts are drawn from, or were; None: there is none yet.
    """

    kind: Kind
    target: str
    when: Trigger | None = None
    between: tuple[float, float] | None = None
    seconds: float = 0.0
    share: float = 0.0
    rate_bits: int | None = None
    delay_us: int | None = None
    seed: int | None = None

    @property
    def is_random(self) -> bool:
        """Whether a part of it is still to be drawn."""
        return self.target == RANDOM or self.between is not None

    @property
    def text(self) -> str:
        """The same fault as one would write it; `parse` reads it back."""
        arguments = [self.action, self.target]
        if self.between is not None:
            arguments.append("at random between {:g}s {:g}s".format(*self.between))
        elif self.when is not None:
            arguments.append(f"after {str(self.when).removeprefix('after ')}")
        if self.seed is not None:
            arguments.append(f"seed {self.seed}")
        return " ".join(arguments)

    @property
    def action(self) -> str:
        """What is done and how, without target and moment: `cut:5s`."""
        how: list[str] = []
        if self.kind is Kind.SLOW:
            how.append(f"{self.share:g}")
        if self.rate_bits is not None:
            how.append(f"rate={_written(self.rate_bits, _RATES)}")
        if self.delay_us is not None:
            how.append(f"delay={_written(self.delay_us, _DELAYS)}")
        if self.seconds:
            how.append(f"{self.seconds:.3f}".rstrip("0").rstrip(".") + "s")
        return f"{self.kind}:{','.join(how)}" if how else str(self.kind)


def parse(text: str) -> Fault:
    """Read one fault.

    Raises:
        ValueError: It is none; the message says in one line what is wrong and what to write.
    """
    arguments = text.split()
    if not arguments:
        raise ValueError(f"a fault is missing; write one such as {_LIKE[Kind.PAUSE]} worker-1")
    name, colon, raw = arguments[0].partition(":")
    kind = _kind(name)
    if colon and not raw:
        raise ValueError(f"nothing stands behind {arguments[0]!r}; write {_LIKE[kind]}")
    if len(arguments) == 1:
        raise ValueError(
            f"{arguments[0]!r} has no target; name a task, a node or {RANDOM} behind it"
        )
    target, rest = arguments[1], arguments[2:]
    if not _TARGET.fullmatch(target):
        raise ValueError(f"{target!r} is no target; name a task, a node or {RANDOM}")
    rest, seed = _seed(rest)
    when, between = _moment(rest)
    return Fault(kind, target, when, between, seed=seed, **_how(kind, raw))


def parse_all(text: str) -> tuple[Fault, ...]:
    """Read several faults, with a semicolon between them.

    Raises:
        ValueError: One of them is none, or there is none at all.
    """
    parts = [part for part in text.split(";") if part.strip()]
    return tuple(parse(part) for part in parts or [""])


def resolve(fault: Fault, places: Mapping[str, str], seed: int) -> Fault:
    """See that the target exists, and draw what is random: the target first, then the moment.

    Args:
        fault: What was written.
        places: Task to node, in the order of the plan.
        seed: What is drawn from where the fault carries no seed of its own.

    Returns:
        The same fault without anything random. `link` and `cut` name a node.

    Raises:
        ValueError: There is no such target; the message says which there are.
    """
    if fault.is_random:
        fault = replace(fault, seed=seed if fault.seed is None else fault.seed)
        draw = random.Random(fault.seed)  # noqa: S311  (repeatable, not secret)
        if fault.target == RANDOM:
            fault = replace(fault, target=draw.choice(tuple(places)))
        if fault.between is not None:
            moment = Trigger(seconds=round(draw.uniform(*fault.between), 1))
            fault = replace(fault, when=moment, between=None)
    if fault.target not in places and fault.target not in places.values():
        nodes = tuple(dict.fromkeys(places.values()))
        near = suggestion(fault.target, (*places, *nodes))
        there = f"{', '.join(places)} on {', '.join(nodes)}"
        raise ValueError(f"no task and no node {fault.target!r}; {near}there are {there}")
    if fault.kind.on_network:
        fault = replace(fault, target=places.get(fault.target, fault.target))
    return fault


def resolve_all(
    faults: Iterable[Fault], places: Mapping[str, str], seed: int | None = None
) -> tuple[Fault, ...]:
    """The same for several, each drawn from a seed of its own; without a seed from a fresh one.

    Raises:
        ValueError: A target does not exist.
    """
    first = secrets.randbelow(MAX_SEED) if seed is None else seed
    return tuple(
        resolve(fault, places, (first + position) % MAX_SEED)
        for position, fault in enumerate(faults)
    )


def concerns(fault: Fault, task: str, node: str) -> bool:
    """Whether a fault that is not random concerns this task of this node."""
    return fault.target in {task, node}


def due(fault: Fault, elapsed_s: float, global_step: int | None) -> bool:
    """Whether its moment has come.

    Args:
        fault: One without anything random.
        elapsed_s: Seconds that the run is under way.
        global_step: How far it is, or None where no step was made.
    """
    return fault.when is None or fault.when.has_come(elapsed_s, global_step)


def relative_to_now(fault: Fault, elapsed_s: float) -> Fault:
    """A fault whose seconds count from now, as one whose seconds count from the run's begin."""
    if fault.when is None or fault.when.seconds is None:
        return fault
    return replace(fault, when=Trigger(seconds=round(fault.when.seconds + elapsed_s, 1)))


def parse_resolved(text: str) -> Fault:
    """Read a fault that has nothing random.

    Raises:
        ValueError: It is none.
    """
    fault = parse(text)
    if fault.is_random:
        raise ValueError(f"{text!r} is still random; the helper draws before it submits")
    return fault


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        kinds = ", ".join(Kind)
        raise ValueError(f"no fault {name!r}; {suggestion(name, Kind)}there are {kinds}") from None


def _how(kind: Kind, raw: str) -> dict[str, Any]:
    """What stands behind the colon, as attributes of the fault."""
    if kind in {Kind.KILL, Kind.STOP}:
        if raw:
            raise ValueError(f"{kind} takes nothing behind a colon; write {_LIKE[kind]}")
        return {}
    parts = raw.split(",") if raw else []
    if kind in {Kind.PAUSE, Kind.CUT}:
        if len(parts) != 1:
            raise ValueError(f"{kind} needs one time; write {_LIKE[kind]}")
        return {"seconds": _lasting(parts[0])}
    if kind is Kind.SLOW:
        if len(parts) not in {1, 2}:
            raise ValueError(f"slow needs the share of the time; write {_LIKE[kind]}")
        return {"share": _share(parts[0]), "seconds": _lasting_of(parts[1:])}
    return _link(parts)


def _link(parts: Sequence[str]) -> dict[str, Any]:
    readers = {
        "rate": ("rate_bits", _RATES, _MAX_RATE_BITS),
        "delay": ("delay_us", _DELAYS, _MAX_DELAY_US),
    }
    found: dict[str, Any] = {}
    times = [part for part in parts if "=" not in part]
    for part in (part for part in parts if "=" in part):
        name, _, raw = part.partition("=")
        if name not in readers:
            raise ValueError(
                f"a link has no {name!r}; {suggestion(name, readers)}it has rate and delay"
            )
        attribute, units, most = readers[name]
        if attribute in found:
            raise ValueError(f"the {name} of a link is given twice; give it once")
        found[attribute] = _amount(part, raw, units, most)
    if not found or len(times) > 1:
        raise ValueError(f"link needs a rate or a delay; write {_LIKE[Kind.LINK]}")
    return {**found, "seconds": _lasting_of(times)}


def _amount(part: str, raw: str, units: Mapping[str, int], most: int) -> int:
    """A number and a unit, as in a description; in the smallest unit."""
    match = re.fullmatch(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,3}})?)({'|'.join(units)})", raw)
    amount = int(Decimal(match[1]) * units[match[2]]) if match else 0
    if not 0 < amount <= most:
        example = _LIKE[Kind.LINK].rpartition(" ")[2].removeprefix("link:")
        raise ValueError(
            f"{part!r} is no number and one of {', '.join(units)}; write it as in {example}"
        )
    return amount


def _written(amount: int, units: Mapping[str, int]) -> str:
    """The largest unit that shows it exactly."""
    exact = [unit for unit, size in units.items() if amount % size == 0]
    unit = exact[-1] if exact else next(iter(units))
    return f"{(Decimal(amount) / units[unit]).normalize():f}{unit}"


def _share(raw: str) -> float:
    share = float(raw) if re.fullmatch(r"0?\.[0-9]{1,3}", raw) else 0.0
    if not share:
        raise ValueError(f"{raw!r} is no share between 0 and 1; write {_LIKE[Kind.SLOW]}")
    return share


def _lasting(raw: str) -> float:
    seconds = round(parse_duration(raw), 3)
    if not 0 < seconds <= LONGEST_S:
        raise ValueError(f"{raw} is no time that a fault can hold; give up to {LONGEST_S:g}s")
    return seconds


def _lasting_of(parts: Sequence[str]) -> float:
    return _lasting(parts[0]) if parts else LASTING_S


def _seed(arguments: list[str]) -> tuple[list[str], int | None]:
    """The words before `seed N`, and N."""
    if "seed" not in arguments:
        return arguments, None
    place = arguments.index("seed")
    number = arguments[place + 1 :]
    if len(number) != 1 or not re.fullmatch(r"[0-9]{1,10}", number[0]):
        raise ValueError("seed needs one whole number, at the end; write seed 42")
    return arguments[:place], int(number[0])


def _moment(arguments: list[str]) -> tuple[Trigger | None, tuple[float, float] | None]:
    match arguments:
        case []:
            return None, None
        case ["after", *moment] if moment:
            return parse_trigger(" ".join(moment)), None
        case ["at", "random"]:
            return None, BETWEEN_S
        case ["at", "random", "between", first, "and", last] | [
            "at",
            "random",
            "between",
            first,
            last,
        ]:
            between = parse_duration(first), parse_duration(last)
            if between[0] > between[1]:
                raise ValueError(f"{first} comes after {last}; give the earlier time first")
            return None, between
        case _:
            raise ValueError(f"{' '.join(arguments)!r} says not when; write {_TIMES}")
