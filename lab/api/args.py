"""From Python's arguments to those of the command line, with the same checks."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from lab.config.start_schedule import parse_start
from lab.errors import InputError
from lab.run import project
from lab.run.fault_injection import parse_faults
from lab.run.program import names_a_program
from lab.task.protocol.faults import Fault
from lab.task.protocol.policy import Policy, parse_policy
from lab.task.text import short, suggestion

T = TypeVar("T")


def program_args(experiment: str, flags: Mapping[str, object]) -> tuple[str, ...]:
    """The arguments of an experiment's program: `--epochs=3`.

    Args:
        experiment: The experiment, or a program of the user's own, whose flags are not known.
        flags: Name to value; True and False where the program has a switch.

    Raises:
        InputError: There is no such experiment, the program has no such flag, or it does not take
            that value.
    """
    if names_a_program(experiment):
        for name, value in flags.items():
            raise InputError(
                f"{name!r} is no argument of run, and the flags of {short(Path(experiment).name)}"
                " are not known here",
                f"give them as args=[{f'--{name}={value}'!r}]",
            )
        return ()
    known = project.experiment(experiment).flags
    found = []
    for name, value in flags.items():
        flag = known.get(name)
        if flag is None:
            raise InputError(
                f"{experiment!r} has no flag {name!r}",
                f"{suggestion(name, known)}see `lab experiments {experiment}`",
            )
        raw = str(value).lower() if isinstance(value, bool) else str(value)
        parsed = parse_arg(name, flag.parse, raw)
        if not flag.is_switch:
            found.append(f"--{name}={raw}")
        elif parsed is True:
            found.append(f"--{name}")
    return tuple(found)


def policy(text: str | None) -> Policy | None:
    """`fail`, `restart`, `restart:5` or `continue`.

    Raises:
        InputError: It is none of them.
    """
    return None if text is None else parse_arg("on_failure", parse_policy, text)


def schedule(start: str | Mapping[str, str] | None) -> dict[str, str]:
    """When tasks start that do not with the others: `worker-1: 10s`, or `{"worker-1": "10s"}`.

    Raises:
        InputError: It is of neither form.
    """
    if not start:
        return {}
    pairs = start if isinstance(start, str) else "; ".join(f"{k}: {v}" for k, v in start.items())
    return parse_arg("start", parse_start, pairs)


def faults(given: str | Sequence[str]) -> tuple[Fault, ...]:
    """What is to be done to the run, a text each, or one with semicolons between them.

    Raises:
        InputError: One of them is none.
    """
    text = given if isinstance(given, str) else "; ".join(given)
    return parse_arg("faults", parse_faults, text) if text else ()


def parse_arg(name: str, parse: Callable[[str], T], raw: str) -> T:
    """The value of an argument.

    Raises:
        InputError: It cannot be read; the message names the argument.
    """
    try:
        return parse(raw)
    except ValueError as error:
        raise InputError(f"{name}: {raw!r} is not {error}") from error
    except ArgumentTypeError as error:
        raise InputError(f"{name}: {error}") from error
