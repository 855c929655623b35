"""Booting, and seeing for oneself that every task has its own cards and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from lab.backends import Backend, Check, Environment, Notify
from lab.errors import LabError
from lab.gpu import Gpu, NvmlError, read_host
from lab.gpu.verification import GpuCheck, GpuStatus, GpuView, check_gpus
from lab.placement.plan import Plan

_MANY = 3  # so many tasks are named


def boot(
    backend: Backend, plan: Plan, *, root: Path, notify: Notify, share: bool = False
) -> Environment:
    """Boot an environment, and see that its tasks see what was planned.

    Args:
        backend: Where.
        plan: What.
        root: The project's directory.
        notify: Receives progress.
        share: Whether another environment may hold the same GPUs.

    Raises:
        LabError: It did not come up, or a task sees other cards; nothing is left behind.
    """
    check: Check = lambda up: verify_gpus(up, plan, notify)  # noqa: E731
    return backend.up(plan, root=root, notify=notify, check=check, share=share)


def verify_gpus(environment: Environment, plan: Plan, notify: Notify) -> None:
    """Compare what each task sees with the plan, and say in one line how it came out.

    Where neither the plan nor the box has a GPU, nobody is asked and nothing is said.

    Args:
        environment: The environment; it is up.
        plan: What it was booted from.
        notify: Receives the line.

    Raises:
        LabError: A task sees other cards, or cannot use its own.
    """
    gpus = host_gpus() if environment.is_local else ()
    planned = {task.name: task.gpus for task in plan.tasks}
    if not gpus and not any(planned.values()):
        return
    verdicts = evaluate(environment, planned, gpus, tensorflow=True)
    _refuse_faults(verdicts)
    notify(summary_line({name: verdicts[name] for name in planned if name in verdicts}))


def evaluate(
    environment: Environment,
    planned: Mapping[str, tuple[str, ...]],
    gpus: Sequence[Gpu],
    *,
    tensorflow: bool = False,
) -> dict[str, GpuCheck]:
    """What is known of each task's cards.

    Args:
        environment: The environment.
        planned: Task to device ids; who is not named (an anchor) was planned none.
        gpus: The cards of this box.
        tensorflow: Whether TensorFlow is asked too, which takes seconds: only where a driver
            answers inside a task, and nothing speaks against the plan until then.
    """
    sights = environment.probe_gpus(tensorflow=False)
    found = _verdicts(sights, planned, gpus)
    answered = any(each.answered for each in sights.values())
    if tensorflow and answered and all(each.status.good for each in found.values()):
        again = environment.probe_gpus(tensorflow=True)
        # A TensorFlow that does not answer in time takes back nothing of what others reported.
        known = {name: each for name, each in again.items() if each.environment is not None}
        found = _verdicts(sights | known, planned, gpus)
    return found


def host_gpus() -> tuple[Gpu, ...]:
    """The cards of this box; none where no driver answers."""
    try:
        return read_host().gpus
    except NvmlError:
        return ()


def summary_line(verdicts: Mapping[str, GpuCheck]) -> str:
    """One line for verdicts of which none speaks against the plan."""
    return "GPUs: " + ", ".join(_parts(verdicts))


def _verdicts(
    sights: Mapping[str, GpuView], planned: Mapping[str, tuple[str, ...]], gpus: Sequence[Gpu]
) -> dict[str, GpuCheck]:
    uuids = {str(gpu.index): gpu.device_id for gpu in gpus if not gpu.is_slice}
    minors: dict[str, int] = {}
    for gpu in gpus:
        # On some systems (WSL) there are no nodes, and so there are none in a container.
        if gpu.minor is not None and Path(f"/dev/nvidia{gpu.minor}").exists():
            minors[gpu.device_id] = gpu.minor
            minors[str(gpu.index)] = gpu.minor
    return {
        name: check_gpus(planned.get(name, ()), gpu_view, minors, uuids)
        for name, gpu_view in sights.items()
    }


def _refuse_faults(verdicts: Mapping[str, GpuCheck]) -> None:
    bad = {name: each for name, each in verdicts.items() if not each.status.good}
    if bad:
        (name, first), *others = bad.items()
        names = _names([other for other, _ in others])
        more = f" (nor {'are' if len(others) > 1 else 'is'} {names} as planned)" if others else ""
        raise LabError(f"{name}: {first.explanation}{more}", first.fix)


def _parts(verdicts: Mapping[str, GpuCheck]) -> Iterator[str]:
    holders = {name: each for name, each in verdicts.items() if each.planned}
    for argument, how in ((GpuStatus.PROVED, "proved"), (GpuStatus.DECLARED, "declared only")):
        group = {name: each for name, each in holders.items() if each.status is argument}
        if group:
            gpus = len({gpu for each in group.values() for gpu in each.planned})
            first = next(iter(group.values()))
            why = ", ".join(first.sources)
            if argument is GpuStatus.DECLARED:
                why = first.explanation.partition("; ")[2]
            yield f"{_count(gpus, 'card')} of {_count(len(group), 'task')} {how} ({why})"
    unknown = [(name, each) for name, each in verdicts.items() if each.status is GpuStatus.UNKNOWN]
    for name, each in unknown[:1]:
        others = f" and {_count(len(unknown) - 1, 'other')}" if len(unknown) > 1 else ""
        yield f"{name}{others}: {each.explanation}"
    empty = {name: each for name, each in verdicts.items() if not each.planned}
    for argument, one, several in (
        (GpuStatus.PROVED, "sees none", "see none"),
        (GpuStatus.DECLARED, "is told of none", "are told of none"),
    ):
        names = [name for name, each in empty.items() if each.status is argument]
        if names:
            yield f"{_names(names)} {one if len(names) == 1 else several}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _names(names: Collection[str]) -> str:
    if len(names) > _MANY:
        return f"{len(names)} tasks"
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
