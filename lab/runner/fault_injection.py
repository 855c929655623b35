"""Inject the network faults of a run that this client follows.

An agent has no permission to change its node's network. So the client that follows the run injects
network faults from outside the node. Without such a client only the other faults are injected.
"""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from typing import Final

from lab.backends.environment import Environment
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.base.threads import in_background, signals_blocked
from lab.protocol.experiments.faults import Fault, Kind, check_target, due, parse, parse_all

END_S: Final = 2.0
"""Seconds to wait, at the end of a run, for faults that were just started."""


class FaultNotDelivered(LabError):  # noqa: N818  (a state)
    """A fault is in effect, but the run has no record of it."""


def parse_faults(raw: str) -> tuple[Fault, ...]:
    """Parse the faults of a flag.

    Raises:
        ValueError: The text is empty; the message names the expected form.
        ArgumentTypeError: A part of the text is not a fault.
    """
    if not raw:
        raise ValueError("a fault, such as kill worker-1 after 500 steps")
    try:
        return parse_all(raw)
    except ValueError as error:
        raise ArgumentTypeError(f"no such fault: {error}") from error


def check_targets(
    faults: Iterable[Fault], nodes: Mapping[str, str], stall_s: float
) -> tuple[str, ...]:
    """Check the targets of a request's faults, report warnings, and return the faults' texts.

    Args:
        faults: The faults to inject.
        nodes: Task to node, in the order of the plan.
        stall_s: Seconds without a new global step after which the run fails; 0: no limit.

    Raises:
        InputError: A target does not exist.
    """
    try:
        checked = [check_target(fault, nodes) for fault in faults]
    except ValueError as error:
        raise input_error(error) from error
    for fault in checked:
        if line := warning(fault, stall_s):
            LOG.warning(f"warning: {line}")
    return tuple(fault.text for fault in checked)


def check_followed(faults: Iterable[Fault]) -> None:
    """Check that no fault needs an attached client.

    Raises:
        InputError: A fault acts on a network.
    """
    if fault := next((fault for fault in faults if fault.kind.on_network), None):
        raise InputError(
            f"fault {fault.text!r} needs an attached client, and --detach leaves none",
            "leave out --detach, or inject it later with `lab fault`",
        )


def input_error(error: ValueError) -> InputError:
    """Convert the error of an invalid fault to an `InputError`."""
    problem, _, fix = str(error).partition("; ")
    return InputError(f"no such fault: {problem}", fix or "see `lab fault --help`")


class NetworkFaults:
    """Starts the network faults of one run when they are due, each in its own thread."""

    def __init__(self, environment: Environment, run_id: str, faults: Iterable[str]) -> None:
        """Start the clock of the faults: the run has just been submitted.

        Args:
            environment: The environment of the run.
            run_id: The run.
            faults: The faults of its request.

        Raises:
            ValueError: A text is not a fault.
        """
        self._environment = environment
        self._run_id = run_id
        self._began = time.monotonic()
        parsed = [parse(text) for text in faults]
        self._waiting = [fault for fault in parsed if fault.kind.on_network]
        self._started: list[tuple[Fault, Future[None]]] = []

    def tick(self, global_step: int | None) -> None:
        """Start the faults that are due, and report failed ones; called about once a second.

        Args:
            global_step: The run's global step, or None before the first step.
        """
        elapsed_s = time.monotonic() - self._began
        for fault in list(self._waiting):
            if not due(fault, elapsed_s, global_step, trains=global_step is not None):
                continue
            self._waiting.remove(fault)
            with signals_blocked():
                injection = partial(inject, self._environment, self._run_id, fault)
                self._started.append((fault, in_background(injection)))
        self._report_end()

    def end(self) -> None:
        """Start no more faults, wait briefly for the started ones, and report the failed ones."""
        self._waiting.clear()
        wait([future for _, future in self._started], END_S)
        self._report_end()
        for fault, _ in self._started:
            LOG.warning(
                f"fault {fault.text} was started, but it may not be in effect:"
                f" end it with `lab down {self._environment.project}`"
            )
        self._started.clear()

    def _report_end(self) -> None:
        for fault, future in [injection for injection in self._started if injection[1].done()]:
            self._started.remove((fault, future))
            error = future.exception()
            if isinstance(error, FaultNotDelivered):
                LOG.warning(str(error))
            elif isinstance(error, LabError | OSError):
                LOG.warning(f"fault {fault.text} was not injected: {error}")
            elif error is not None:
                raise error


def inject(environment: Environment, run_id: str, fault: Fault) -> None:
    """Inject a fault into a run that is under way.

    The agents inject faults that act on a program. The client injects network faults itself, and
    notifies the agents as soon as a fault is in effect. The agents then record it for all tasks
    that it affects.

    Raises:
        FaultNotDelivered: The fault is in effect, but the agents could not be notified.
        LabError: The fault could not be injected.
    """
    if not fault.kind.on_network:
        environment.inject_fault(run_id, fault.text)
        return
    environment.inject_network_fault(fault.target, (fault.action,))
    try:
        environment.inject_fault(run_id, fault.text)
    except (LabError, OSError) as error:
        raise FaultNotDelivered(
            f"fault {fault.text} is in effect, but run {run_id} has no record of it: {error}"
        ) from error


def warning(fault: Fault, stall_s: float) -> str | None:
    """Return the warning about a fault before it is injected; None: no warning.

    Args:
        fault: The fault.
        stall_s: Seconds without a new global step after which the run fails; 0: no limit.
    """
    if not stall_s or fault.seconds < stall_s or fault.kind not in {Kind.PAUSE, Kind.CUT}:
        return None
    return (
        f"fault {fault.text} lasts at least as long as --stall {stall_s:g}s: if all tasks wait"
        f" for {fault.target}, the run fails before the fault ends"
    )
