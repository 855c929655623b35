"""Who gets which of a node's GPUs, and which port: arithmetic that needs no inventory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Final

from lab.config.diagnostics import Loc, Problem
from lab.config.model import Cluster, Job, Node
from lab.formatting import counted
from lab.task.text import short

PS: Final = "ps"
"""The job that keeps the parameters: its tasks never hold a GPU."""

_NAMED: Final = 4  # tasks that a message names


@dataclass(frozen=True, slots=True)
class TaskSlot:
    """One task on its node, before it has GPUs.

    Attributes:
        name: `worker-1`.
        job: Its job's name.
        index: Its index in the job.
        asks: How many GPUs it states, or None for its part of what the others leave.
        share: Whether it shares GPUs with its neighbours.
        fraction: How much of each GPU's memory it takes, or None.
    """

    name: str
    job: str
    index: int
    gpus: int | None
    share: bool
    gpu_memory_fraction: float | None

    @property
    def loc(self) -> Loc:
        """Where the description puts it on its node."""
        return ("jobs", self.job, "on", self.index)


class AllocationError(Exception):
    """A node's GPUs do not suffice for its tasks.

    Attributes:
        problem: Why.
    """

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def tasks_by_node(jobs: Mapping[str, Job]) -> dict[str, list[TaskSlot]]:
    """The tasks on each node, in the order of the jobs: the order of their ports and GPUs."""
    seats: dict[str, list[TaskSlot]] = {}
    for name, job in jobs.items():
        asks = 0 if name == PS and job.gpus is None else job.gpus
        for index, node in enumerate(job.on):
            seat = TaskSlot(
                f"{name}-{index}", name, index, asks, job.share, job.gpu_memory_fraction
            )
            seats.setdefault(node, []).append(seat)
    return seats


def allocate_gpus(name: str, node: Node, seats: Sequence[TaskSlot]) -> list[tuple[int, ...]]:
    """Deal a node's GPUs to its tasks.

    Tasks that do not share take theirs first, in order: those that state a number, and then, in
    equal parts, those that state none. What they leave is shared by those that share.

    Args:
        name: The node's name.
        node: The node.
        seats: Its tasks, in order.

    Returns:
        Per task, which of the node's GPUs: positions from 0 in the node's own list.

    Raises:
        AllocationError: They do not suffice, or cannot be divided.
    """
    own = [seat for seat in seats if not seat.share]
    equal = [seat for seat in own if seat.gpus is None]
    left = node.gpu_count - sum(seat.gpus or 0 for seat in own)
    if left < 0:
        raise _too_many(name, node, own)
    part, rest = divmod(left, len(equal)) if equal else (0, 0)
    if rest or (equal and node.gpu_count and not part):
        raise _does_not_divide(name, node, left, equal)
    pool = range(node.gpu_count - (0 if equal else left), node.gpu_count)
    _check_sharing(name, node, len(pool), [seat for seat in seats if seat.share])
    gpus: list[tuple[int, ...]] = []
    taken = 0
    for seat in seats:
        if seat.share:
            gpus.append(tuple(pool[: seat.gpus]))
        else:
            count = part if seat.gpus is None else seat.gpus
            gpus.append(tuple(range(taken, taken + count)))
            taken += count
    return gpus


def idle_gpus(cluster: Cluster) -> list[str]:
    """One line for each node with GPUs that none of its tasks uses; empty where all are used.

    Args:
        cluster: A description without faults.
    """
    seats = tasks_by_node(cluster.jobs)
    lines = []
    for name, node in cluster.nodes.items():
        used = {gpu for gpus in allocate_gpus(name, node, seats.get(name, ())) for gpu in gpus}
        if idle := node.gpu_count - len(used):
            lines.append(f"{name}: {idle} of {counted(node.gpu_count, 'GPU')} used by no task")
    return lines


def _too_many(name: str, node: Node, own: Sequence[TaskSlot]) -> AllocationError:
    asking = [seat for seat in own if seat.gpus]
    totals = list(accumulate(seat.gpus or 0 for seat in asking))
    first = next(seat for seat, total in zip(asking, totals, strict=True) if total > node.gpu_count)
    requested = _listed(f"{seat.name}: {seat.gpus}" for seat in asking)
    return AllocationError(
        Problem(
            first.loc,
            f"the tasks on {name} ask for {counted(totals[-1], 'GPU')} ({requested}) and it has "
            f"{node.gpu_count}; give the node more, the tasks fewer, or say `share: true`",
        )
    )


def _does_not_divide(
    name: str, node: Node, left: int, equal: Sequence[TaskSlot]
) -> AllocationError:
    tasks = _listed(seat.name for seat in equal)
    if left == 0:
        message = f"none of the {counted(node.gpu_count, 'GPU')} of {name} is left for {tasks}"
    else:
        among = f"{len(equal)} tasks ({tasks})"
        message = f"{counted(left, 'GPU')} of {name} cannot be divided equally among {among}"
    fix = "; state the job's `gpus` (0 for tasks on the CPU), or say `share: true`"
    return AllocationError(Problem(equal[0].loc, message + fix))


def _check_sharing(name: str, node: Node, pool: int, shared: Sequence[TaskSlot]) -> None:
    if shared and pool == 0:
        has = "has no GPUs" if node.gpu_count == 0 else "has none left"
        raise AllocationError(
            Problem(shared[0].loc, f"{shared[0].name} shares the GPUs of {name}, which {has}")
        )
    for seat in shared:
        if seat.gpus is not None and seat.gpus > pool:
            asks = counted(seat.gpus, "GPU")
            message = f"{seat.name} asks for {asks} and {name} has {pool} to share"
            raise AllocationError(Problem(seat.loc, message))
    # Every task takes the first ones, so the first GPU carries them all. The sum is exact: in
    # floating point, ten times 0.1 and such would depend on the order.
    total = sum(
        Fraction(repr(seat.gpu_memory_fraction))
        for seat in shared
        if seat.gpu_memory_fraction is not None
    )
    if total > 1:
        tasks = _listed(
            f"{seat.name}: {seat.gpu_memory_fraction}"
            for seat in shared
            if seat.gpu_memory_fraction
        )
        raise AllocationError(
            Problem(
                shared[-1].loc,
                f"the tasks that share a GPU of {name} take {float(total):.6g} of its memory "
                f"({tasks}); no more than 1.0 is there",
            )
        )


def _listed(arguments: Iterable[str]) -> str:
    arguments = list(arguments)
    more = f", … {len(arguments) - _NAMED} more" if len(arguments) > _NAMED else ""
    return short(", ".join(arguments[:_NAMED]) + more)
