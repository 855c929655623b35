"""The helper's part in the faults of a run that it follows: those that act on a network.

An agent may not change its node's network, so that whoever follows the run has it done from
outside. Without a follower these faults do not come; the others do.
"""

from __future__ import annotations

import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Final

from lab.backends import Environment, Notify
from lab.errors import InputError, LabError
from lab.task.probes import netfault
from lab.task.protocol.faults import Fault, Kind, due, parse_all, parse_resolved, resolve_all
from lab.threads import in_background, signals_blocked

END_S: Final = 2.0
"""Seconds that faults which have just been begun get to hold, or to be refused, at the end."""


class FaultNotDelivered(LabError):  # noqa: N818  (a state)
    """A fault holds, and no record of the run says so."""


def parse_faults(raw: str) -> tuple[Fault, ...]:
    """Read the faults of a flag.

    Raises:
        ValueError: There is none; the message says what was expected.
        ArgumentTypeError: One of them is none.
    """
    if not raw:
        raise ValueError("a fault, such as kill worker-1 after 500 steps")
    try:
        return parse_all(raw)
    except ValueError as error:
        raise ArgumentTypeError(f"no such fault: {error}") from error


def resolve(
    faults: Iterable[Fault], places: Mapping[str, str], stall_s: float, notify: Notify
) -> tuple[str, ...]:
    """The faults of a request, with everything random drawn, and warnings said.

    Args:
        faults: What was asked for.
        places: Task to node, in the order of the plan.
        stall_s: Seconds without a new global step after which the run has failed; 0: no limit.
        notify: Receives warnings.

    Raises:
        InputError: A target does not exist.
    """
    try:
        drawn = resolve_all(faults, places)
    except ValueError as error:
        raise input_error(error) from error
    for fault in drawn:
        if line := warning(fault, stall_s):
            notify(f"warning: {line}")
    return tuple(fault.text for fault in drawn)


def check_followed(faults: Iterable[Fault]) -> None:
    """See that no fault needs a follower, for a run that is to have none.

    Raises:
        InputError: One acts on a network.
    """
    if fault := next((fault for fault in faults if fault.kind.on_network), None):
        raise InputError(
            f"nobody would be there for {fault.text!r}: whoever follows a run does it",
            "leave out --detach, or use `lab fault` later",
        )


def input_error(error: ValueError) -> InputError:
    """What is wrong with a fault, as an error of a command's."""
    what, _, fix = str(error).partition("; ")
    return InputError(f"no such fault: {what}", fix or "see `lab fault --help`")


class NetworkFaults:
    """Starts the network faults of one run when they are due; nothing of it holds anybody up."""

    def __init__(
        self,
        environment: Environment,
        run_id: str,
        faults: Iterable[str],
        notice: Notify,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin: the run has just been submitted.

        Args:
            environment: Where the run is.
            run_id: The run.
            faults: Those of its request, with nothing random.
            notice: Receives a line for each that could not be done.
            monotonic: Seconds that never run back.

        Raises:
            ValueError: One of them is none, or is still random.
        """
        self._environment = environment
        self._run_id = run_id
        self._notice = notice
        self._monotonic = monotonic
        self._began = monotonic()
        every = [parse_resolved(text) for text in faults]
        self._waiting = [fault for fault in every if fault.kind.on_network]
        self._begun: list[tuple[Fault, Future[None]]] = []

    def tick(self, global_step: int | None) -> None:
        """Begin what is due, and say what could not be done; called about once a second.

        Args:
            global_step: How far the run is, or None where no step was made.
        """
        elapsed_s = self._monotonic() - self._began
        for fault in [each for each in self._waiting if due(each, elapsed_s, global_step)]:
            self._waiting.remove(fault)
            with signals_blocked():
                self._begun.append((fault, in_background(lambda fault=fault: self._do(fault))))  # type: ignore[misc]
        self._report_end()

    def end(self) -> None:
        """Begin nothing more, wait a moment for what was begun, and say what became of it."""
        self._waiting.clear()
        wait([future for _, future in self._begun], END_S)
        self._report_end()
        for fault, _ in self._begun:
            self._notice(
                f"fault {fault.text} was begun, and is not known to hold:"
                f" `lab down {self._environment.project}` ends it"
            )
        self._begun.clear()

    def _report_end(self) -> None:
        for fault, future in [each for each in self._begun if each[1].done()]:
            self._begun.remove((fault, future))
            error = future.exception()
            if isinstance(error, FaultNotDelivered):
                self._notice(str(error))
            elif isinstance(error, LabError | OSError):
                self._notice(f"fault {fault.text} was not done: {error}")
            elif error is not None:
                raise error

    def _do(self, fault: Fault) -> None:
        inject(self._environment, self._run_id, fault)


def inject(environment: Environment, run_id: str, fault: Fault) -> None:
    """Let a fault be done to a run that is under way.

    What acts on a program is told to the agents. What acts on a network is done from here, and told
    as soon as it holds, so that it stands among the records of all tasks that it hits.

    Raises:
        Untold: It holds, and the run could not be told.
        LabError: It could not be done.
    """
    if not fault.kind.on_network:
        environment.inject_fault(run_id, fault.text)
        return
    environment.inject_network_fault(fault.target, netfault.argv(fault))
    try:
        environment.inject_fault(run_id, fault.text)
    except (LabError, OSError) as error:
        raise FaultNotDelivered(
            f"fault {fault.text} holds, and no record of run {run_id} says so: {error}"
        ) from error


def warning(fault: Fault, stall_s: float) -> str | None:
    """What is to be said of a fault before it comes; None: nothing.

    Args:
        fault: The fault.
        stall_s: Seconds without a new global step after which the run has failed; 0: no limit.
    """
    if not stall_s or fault.seconds < stall_s or fault.kind not in {Kind.PAUSE, Kind.CUT}:
        return None
    return (
        f"fault {fault.text} is no shorter than --stall {stall_s:g}s: where all wait for"
        f" {fault.target}, the run fails before it is over"
    )
