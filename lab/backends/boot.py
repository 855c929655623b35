"""Boots environments, in the same way on every backend except for the steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from lab.backends.environment import Check, Environment
from lab.backends.gpu_record import Handover, Holder, hold_gpus
from lab.backends.state import lock_environment, state_errors
from lab.base.signals import ignore_signals
from lab.cluster.placement.plan import Plan

E = TypeVar("E", bound=Environment)


@dataclass(eq=False)
class Boot(ABC, Generic[E]):
    """The steps of one boot.

    Attributes:
        backend: The backend's name.
        plan: The plan.
        root: The project's directory.
    """

    backend: ClassVar[str]
    plan: Plan
    root: Path

    @abstractmethod
    def prepare(self) -> None:
        """Check that the plan can be booted, and change nothing.

        Raises:
            LabError: It cannot be booted: another environment has its name or its ports.
        """

    def holder(self) -> Holder | None:
        """Return the holder of the plan's GPUs in this host's record; None if it needs none."""
        return None

    @abstractmethod
    def start(self, lock: int | None, hold: Handover) -> E:
        """Start the environment, and wait until every agent runs.

        Args:
            lock: The descriptor of the lock, for a child that must hold it, too.
            hold: The descriptor with the lock of the GPUs, for a child that must hold them, too.

        Raises:
            LabError: The environment does not start. The caller then calls `undo`.
        """

    @abstractmethod
    def undo(self) -> None:
        """Remove what a failed `start` left behind, if anything."""


def boot(steps: Boot[E], check: Check | None = None, *, share: bool) -> E:
    """Boot an environment. If a step fails or is interrupted, nothing is left.

    Args:
        steps: The backend's steps.
        check: Called when every agent runs, if any. If it raises, the boot fails.
        share: Whether another environment may hold the same GPUs.

    Raises:
        Busy: Another command boots or removes the environment now.
        LabError: The boot failed, or another environment holds one of the GPUs.
    """
    with ExitStack() as locked:
        with state_errors():
            lock = locked.enter_context(lock_environment(steps.backend, steps.plan.name))
        steps.prepare()
        with hold_gpus(steps.holder(), share=share) as hold:
            try:
                environment = steps.start(lock, hold)
                if check is not None:
                    check(environment)
            except BaseException:
                with ignore_signals():
                    steps.undo()
                raise
    return environment
