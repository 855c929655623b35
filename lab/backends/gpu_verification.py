"""Boots an environment and verifies that each task sees its own GPUs and no others."""

from __future__ import annotations

from pathlib import Path

from lab.backends.base import Backend
from lab.backends.environment import Check, Environment, no_check
from lab.gpu import host_gpus
from lab.log import LOG
from lab.placement.plan import Plan


def boot(
    backend: Backend,
    plan: Plan,
    *,
    root: Path,
    share: bool = False,
    then: Check = no_check,
) -> Environment:
    """Boot an environment, and verify that its tasks see the planned GPUs.

    Args:
        backend: The backend.
        plan: The plan.
        root: The project's directory.
        share: Whether another environment may hold the same GPUs.
        then: Called when the GPUs are verified. If it raises, the boot fails.

    Raises:
        LabError: The boot failed, or a task sees other GPUs. Nothing is left.
    """

    def check(environment: Environment) -> None:
        verify_gpus(environment, plan)
        then(environment)

    return backend.up(plan, root=root, check=check, share=share)


def verify_gpus(environment: Environment, plan: Plan) -> None:
    """Compare the GPUs that each task sees with the plan, and report the result in one line.

    If neither the plan nor the host has a GPU, nothing is probed or reported.

    Args:
        environment: The environment; it is up.
        plan: The plan that it was booted from.

    Raises:
        LabError: A task sees other GPUs, or cannot use its own.
    """
    gpus = host_gpus() if environment.is_local else ()
    planned = {task.name: task.gpus for task in plan.tasks}
    if not gpus and not any(planned.values()):
        return
    # Imported here: without GPUs there is nothing to verify.
    from lab.gpu.verification import check_all, raise_for_faults, summary_line  # noqa: PLC0415

    checks = check_all(environment.probe_gpus(), planned, gpus)
    if not checks:  # another service has verified them
        return
    raise_for_faults(checks)
    LOG.info(summary_line({name: checks[name] for name in planned if name in checks}))
