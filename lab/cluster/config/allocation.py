"""Allocates a node's GPUs and ports to its tasks; needs no inventory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final

from lab.base.formatting import counted
from lab.cluster.config.cluster import Cluster, Job, Node
from lab.cluster.config.diagnostics import Loc, Problem, ProblemError

PS: Final = "ps"
"""The job of the parameter servers: its tasks never get a GPU."""


_NAMED: Final = 4  # maximum number of tasks that a message names


@dataclass(frozen=True, slots=True)
class TaskSlot:
    """One task on its node, before the allocation of GPUs.

    Attributes:
        name: `worker-1`.
        job: Its job's name.
        index: Its index in the job.
        gpus: The number of GPUs that its job states; None: an equal part of the rest.
        share: Whether it shares GPUs with other tasks of the node.
        gpu_memory_fraction: The part of each GPU's memory that it uses, or None.
    """

    name: str
    job: str
    index: int
    gpus: int | None
    share: bool
    gpu_memory_fraction: float | None

    @property
    def loc(self) -> Loc:
        """The path of the config entry that puts it on its node."""
        return ("jobs", self.job, "on", self.index)


def tasks_by_node(jobs: Mapping[str, Job]) -> dict[str, list[TaskSlot]]:
    """Return the tasks on each node, in the order of the jobs: the order of ports and GPUs."""
    slots: dict[str, list[TaskSlot]] = {}
    for name, job in jobs.items():
        gpus = 0 if name == PS and job.gpus is None else job.gpus
        for index, node in enumerate(job.on):
            slot = TaskSlot(
                f"{name}-{index}", name, index, gpus, job.share, job.gpu_memory_fraction
            )
            slots.setdefault(node, []).append(slot)
    return slots


def allocate_gpus(name: str, node: Node, slots: Sequence[TaskSlot]) -> list[tuple[int, ...]]:
    """Allocate a node's GPUs to its tasks.

    Tasks that do not share take theirs first: a task with a number takes this number. The tasks
    without a number get equal parts of the rest. Tasks with `share` share all GPUs left over.

    Args:
        name: The node's name.
        node: The node.
        slots: Its tasks, in order.

    Returns:
        For each task its GPUs: positions from 0 in the node's own list.

    Raises:
        ProblemError: The node has too few GPUs, or they cannot be divided equally.
    """
    own = [slot for slot in slots if not slot.share]
    equal = [slot for slot in own if slot.gpus is None]
    left = node.gpu_count - sum(slot.gpus or 0 for slot in own)
    if left < 0:
        raise _too_many(name, node, own)
    part, rest = divmod(left, len(equal)) if equal else (0, 0)
    if rest or (equal and node.gpu_count and not part):
        raise _does_not_divide(name, node, left, equal)
    pool = range(node.gpu_count - (0 if equal else left), node.gpu_count)
    _check_sharing(name, node, len(pool), [slot for slot in slots if slot.share])
    gpus: list[tuple[int, ...]] = []
    taken = 0
    for slot in slots:
        if slot.share:
            gpus.append(tuple(pool[: slot.gpus]))
        else:
            count = part if slot.gpus is None else slot.gpus
            gpus.append(tuple(range(taken, taken + count)))
            taken += count
    return gpus


def idle_gpus(cluster: Cluster) -> list[str]:
    """Return a line for each node with GPUs that none of its tasks uses.

    A node whose tasks all state `gpus: 0` has no line: the config says so.

    Args:
        cluster: A valid config.
    """
    slots = tasks_by_node(cluster.jobs)
    lines = []
    for name, node in cluster.nodes.items():
        tasks = slots.get(name, ())
        if tasks and all(cluster.jobs[task.job].gpus == 0 for task in tasks):
            continue
        used = {gpu for gpus in allocate_gpus(name, node, tasks) for gpu in gpus}
        if idle := node.gpu_count - len(used):
            lines.append(f"{name}: {idle} of {counted(node.gpu_count, 'GPU')} unused")
    return lines


def _too_many(name: str, node: Node, own: Sequence[TaskSlot]) -> ProblemError:
    asking = [slot for slot in own if slot.gpus]
    totals = list(accumulate(slot.gpus or 0 for slot in asking))
    first = next(slot for slot, total in zip(asking, totals, strict=True) if total > node.gpu_count)
    requested = _listed(f"{slot.name}: {slot.gpus}" for slot in asking)
    message = (
        f"the tasks on {name} need {counted(totals[-1], 'GPU')} ({requested}), but it has "
        f"{node.gpu_count}; give the node more or the tasks fewer, or set `share: true`"
    )
    return ProblemError(Problem(first.loc, message))


def _does_not_divide(name: str, node: Node, left: int, equal: Sequence[TaskSlot]) -> ProblemError:
    tasks = _listed(slot.name for slot in equal)
    if left == 0:
        message = f"no GPU of {name} is left for {tasks} (it has {node.gpu_count})"
    else:
        among = f"{len(equal)} tasks ({tasks})"
        message = f"{counted(left, 'GPU')} of {name} cannot be divided equally among {among}"
    fix = "; set the job's `gpus` (0 for tasks on the CPU), or set `share: true`"
    return ProblemError(Problem(equal[0].loc, message + fix))


def _check_sharing(name: str, node: Node, pool: int, shared: Sequence[TaskSlot]) -> None:
    if shared and pool == 0:
        has = "has no GPUs" if node.gpu_count == 0 else "has none left"
        first = shared[0]
        message = f"{first.name} shares the GPUs of {name}, which {has}"
        raise ProblemError(Problem(first.loc, message))
    for slot in shared:
        if slot.gpus is not None and slot.gpus > pool:
            needed = counted(slot.gpus, "GPU")
            message = f"{slot.name} needs {needed} and {name} has {pool} to share"
            raise ProblemError(Problem(slot.loc, message))
    # Every task takes the first GPUs, so all of them use the first one. The sum is exact:
    # in floating point, it would depend on the order.
    parts = {slot.name: slot.gpu_memory_fraction for slot in shared if slot.gpu_memory_fraction}
    total = sum(Fraction(repr(part)) for part in parts.values())
    if total > 1:
        tasks = _listed(f"{task}: {part}" for task, part in parts.items())
        message = (
            f"the tasks that share a GPU of {name} take {float(total):.6g} of its memory "
            f"({tasks}); the limit is 1.0"
        )
        raise ProblemError(Problem(shared[-1].loc, message))


def _listed(texts: Iterable[str]) -> str:
    every = list(texts)
    more = f", … {len(every) - _NAMED} more" if len(every) > _NAMED else ""
    return ", ".join(every[:_NAMED]) + more
