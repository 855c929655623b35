"""Boots an environment and verifies that each task sees its own GPUs and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.backends.base import Backend
from lab.backends.environment import Check, Environment, no_check
from lab.errors import LabError
from lab.formatting import counted
from lab.gpu import Gpu, NvmlError, read_host
from lab.gpu.evidence import GpuView
from lab.gpu.verification import GpuCheck, GpuStatus, check_gpus
from lab.log import LOG
from lab.placement.plan import Plan

_MAX_NAMES = 3  # more tasks are counted instead of named


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
    checks = evaluate(environment, planned, gpus, tensorflow=True)
    if not checks:  # another service has verified them
        return
    _raise_for_faults(checks)
    LOG.info(summary_line({name: checks[name] for name in planned if name in checks}))


def evaluate(
    environment: Environment,
    planned: Mapping[str, tuple[str, ...]],
    gpus: Sequence[Gpu],
    *,
    tensorflow: bool = False,
) -> dict[str, GpuCheck]:
    """Check the GPUs of each task.

    Args:
        environment: The environment.
        planned: Task to device ids; a name that is missing (an anchor) has no planned GPU.
        gpus: The GPUs of this host.
        tensorflow: Whether to probe TensorFlow too, which takes seconds. It is probed only if a
            driver answers inside a task, and no other source contradicts the plan.
    """
    views = environment.probe_gpus(tensorflow=False)
    found = _check_all(views, planned, gpus)
    answered = any(each.answered for each in views.values())
    if tensorflow and answered and all(each.status.good for each in found.values()):
        again = environment.probe_gpus(tensorflow=True)
        # If the second probe of a task fails, its first view counts.
        known = {name: each for name, each in again.items() if each.environment is not None}
        found = _check_all(views | known, planned, gpus)
    return found


def host_gpus() -> tuple[Gpu, ...]:
    """Return the GPUs of this host; none if no driver answers."""
    try:
        return read_host().gpus
    except NvmlError:
        return ()


def summary_line(checks: Mapping[str, GpuCheck]) -> str:
    """Return one line for checks that do not contradict the plan."""
    return "GPUs: " + ", ".join(_parts(checks))


def _check_all(
    views: Mapping[str, GpuView], planned: Mapping[str, tuple[str, ...]], gpus: Sequence[Gpu]
) -> dict[str, GpuCheck]:
    uuids = {str(gpu.index): gpu.device_id for gpu in gpus if not gpu.is_slice}
    minors: dict[str, int] = {}
    for gpu in gpus:
        # Some systems (WSL) have no device nodes, neither on the host nor in a container.
        if gpu.minor is not None and Path(f"/dev/nvidia{gpu.minor}").exists():
            minors[gpu.device_id] = gpu.minor
            minors[str(gpu.index)] = gpu.minor
    return {
        name: replace(check_gpus(planned.get(name, ()), gpu_view, minors, uuids), where=name)
        for name, gpu_view in views.items()
    }


def _raise_for_faults(checks: Mapping[str, GpuCheck]) -> None:
    bad = [each for each in checks.values() if not each.status.good]
    if bad:
        first, *others = bad
        names = _names([each.where for each in others])
        more = f" (also not as planned: {names})" if others else ""
        raise LabError(f"{first.where}: {first.what}{more}", first.fix)


def _parts(checks: Mapping[str, GpuCheck]) -> Iterator[str]:
    holders = {name: each for name, each in checks.items() if each.planned}
    for status, how in ((GpuStatus.PROVED, "proved"), (GpuStatus.DECLARED, "declared only")):
        group = {name: each for name, each in holders.items() if each.status is status}
        if group:
            gpus = len({gpu for each in group.values() for gpu in each.planned})
            first = next(iter(group.values()))
            why = ", ".join(first.sources)
            if status is GpuStatus.DECLARED:
                why = first.what.partition("; ")[2]
            yield f"{counted(gpus, 'GPU')} of {counted(len(group), 'task')} {how} ({why})"
    unknown = [(name, each) for name, each in checks.items() if each.status is GpuStatus.UNKNOWN]
    for name, each in unknown[:1]:
        others = f" and {counted(len(unknown) - 1, 'other')}" if len(unknown) > 1 else ""
        yield f"{name}{others}: {each.what}"
    empty = {name: each for name, each in checks.items() if not each.planned}
    for status, one, several in (
        (GpuStatus.PROVED, "sees none", "see none"),
        (GpuStatus.DECLARED, "has none (declared only)", "have none (declared only)"),
    ):
        names = [name for name, each in empty.items() if each.status is status]
        if names:
            yield f"{_names(names)} {one if len(names) == 1 else several}"


def _names(names: Collection[str]) -> str:
    if len(names) > _MAX_NAMES:
        return f"{len(names)} tasks"
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
