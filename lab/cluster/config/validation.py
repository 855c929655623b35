"""The rules that types cannot express: unique names, no GPU twice, numbers that fit.

The start schedule, the tasks of a run that start later than the others, also comes from the flag
`--start`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Final

from lab.base.errors import InputError
from lab.base.formatting import counted
from lab.cluster.config.allocation import PS, TaskSlot, allocate_gpus, tasks_by_node
from lab.cluster.config.cluster import MAX_PORT, Cluster, Job
from lab.cluster.config.diagnostics import Problem, ProblemError
from lab.protocol.experiments.experiment import misfit
from lab.protocol.experiments.faults import check_target, parse, parse_trigger
from lab.protocol.experiments.registry import EXPERIMENTS

WORKER: Final = "worker"
_FORM: Final = "TASK: MOMENT; …, such as worker-1: 10s; worker-2: after 500 steps"


def parse_start(text: str) -> dict[str, str]:
    """Parse `worker-1: 10s; worker-2: after 500 steps`.

    Returns:
        Task to moment, in normal form.

    Raises:
        ValueError: The text does not have this form.
    """
    if not text.strip():
        raise ValueError(_FORM)
    schedule: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        task, colon, moment = part.partition(":")
        if not colon:
            raise ValueError(_FORM)
        schedule[task.strip()] = str(parse_trigger(moment.strip()))
    return schedule


def check_joins(
    start: Mapping[str, str], workers: Sequence[str], *, own_steps: int, all_steps: int
) -> None:
    """Check that the run reaches every step after which a worker joins.

    Args:
        start: Task to moment.
        workers: All workers; every step of each worker increments the global step.
        own_steps: Steps of each worker.
        all_steps: The global step at which all workers end; 0 if there is no such limit.

    Raises:
        InputError: The others end before one of these steps.
    """
    joins = {task: parse_trigger(start[task]).steps for task in workers if task in start}
    for task, steps in joins.items():
        if steps is None:
            continue
        before = [worker for worker in workers if (joins.get(worker) or 0) < steps]
        most = all_steps or own_steps * len(before)
        if steps > most:
            raise InputError(
                f"--start: {task}: the others make only {counted(most, 'step')}, not {steps:,}",
                "use a smaller step, or train longer",
            )


def check_start(start: Mapping[str, str], tasks: Collection[str]) -> None:
    """Check that a schedule fits a cluster.

    Raises:
        InputError: It names an unknown task, or one that cannot start at that moment.
    """
    if problem := next(_start(start, tasks), None):
        raise InputError(f"--start: {replace(problem, path=()).text()}")


RUN_SERVICE: Final = "run"
"""The compose service that starts the run of the config."""

_RESERVED: Final = frozenset({"localhost"})


def validate(cluster: Cluster) -> Iterator[Problem]:
    """Yield a problem for every rule that a config breaks."""
    places = {
        f"{name}-{index}": node
        for name, job in cluster.jobs.items()
        for index, node in enumerate(job.on)
    }
    yield from _names(cluster, places)
    yield from _references(cluster)
    yield from chain.from_iterable(_job(name, job) for name, job in cluster.jobs.items())
    yield from _links(cluster)
    yield from _pins(cluster)
    yield from _box(cluster)
    yield from _run(cluster)
    yield from _start(cluster.start, places)
    yield from _faults(cluster, places)
    slots = tasks_by_node(cluster.jobs)
    yield from _ports(cluster, slots)
    yield from _allocations(cluster, slots)


def _names(cluster: Cluster, tasks: Collection[str]) -> Iterator[Problem]:
    for name in cluster.nodes:
        if name in tasks:
            yield _refused_name(name, f"{name} is a task, and both become services", cluster)
        elif name in _RESERVED:
            yield _refused_name(name, "in every container it is the container itself", cluster)


def _refused_name(name: str, why: str, cluster: Cluster) -> Problem:
    free = next(other for other in map("tf{}".format, count(1)) if other not in cluster.nodes)
    message = f"a node cannot have this name: {why}; use {free}, for example"
    return Problem(("nodes", name), message, on_key=True)


def _references(cluster: Cluster) -> Iterator[Problem]:
    known = list(cluster.nodes)
    for name, job in cluster.jobs.items():
        for index, node in enumerate(job.on):
            if node not in cluster.nodes:
                loc = ("jobs", name, "on", index)
                yield Problem(loc, f"there is no node {node}", misspelt=node, candidates=known)
    for node in cluster.links:
        if node not in cluster.nodes:
            message = f"there is no node {node}"
            yield Problem(("links", node), message, on_key=True, misspelt=node, candidates=known)


def _job(name: str, job: Job) -> Iterator[Problem]:
    loc = ("jobs", name)
    if name == PS and job.gpus:
        yield Problem((*loc, "gpus"), "a ps uses no GPU; write 0, or leave it out")
    if name == PS and job.share:
        yield Problem((*loc, "share"), "a ps uses no GPU to share; remove it")
    elif job.share and job.gpus == 0:
        yield Problem((*loc, "share"), "tasks without GPUs have no GPU to share; remove it")
    if job.gpu_memory_fraction is not None and (name == PS or job.gpus == 0):
        message = "tasks without GPUs use no GPU memory; remove it"
        yield Problem((*loc, "gpu_memory_fraction"), message)
    if name == "chief" and len(job.on) > 1:
        message = f"must be one chief, not {len(job.on)}; make the others workers"
        yield Problem((*loc, "on"), message)


def _links(cluster: Cluster) -> Iterator[Problem]:
    for node, link in cluster.links.items():
        if link.rate is None and link.delay is None:
            message = "a link without a rate or a delay changes nothing; set one of them"
            yield Problem(("links", node), message)


def _run(cluster: Cluster) -> Iterator[Problem]:
    if cluster.run is None:
        return
    if RUN_SERVICE in cluster.nodes:
        why = "`run:` has it, and both become services"
        yield _refused_name(RUN_SERVICE, why, cluster)
    name, at = cluster.run.experiment, ("run", "experiment")
    experiment = EXPERIMENTS.get(name)
    if experiment is None:
        message = f"lab has no experiment {name}"
        yield Problem(at, message, misspelt=name, candidates=list(EXPERIMENTS))
        return
    if why := misfit(experiment, cluster.task_counts):
        yield Problem(at, f"{name} {why}")
    for flag, value in cluster.run.flags.items():
        loc = ("run", "flags", flag)
        if flag not in experiment.flags:
            message = f"{name} has no flag {flag}"
            known = list(experiment.flags)
            yield Problem(loc, message, on_key=True, misspelt=flag, candidates=known)
            continue
        try:
            experiment.flags[flag].parse(value)
        except ValueError as error:
            yield Problem(loc, f"{value!r} is not {error}")


def _start(start: Mapping[str, str], tasks: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each task of a schedule that cannot start at its moment."""
    known = list(tasks)
    for task, text in start.items():
        loc = ("start", task)
        if task not in tasks:
            message = f"there is no task {task}"
            yield Problem(loc, message, on_key=True, misspelt=task, candidates=known)
        elif parse_trigger(text).steps is not None:
            # Imported here: few schedules have steps.
            from lab.protocol.volume.layout import chief_of  # noqa: PLC0415

            if task == chief_of(tasks) or task.rpartition("-")[0] == PS:
                why = f"the others cannot make a step without {task}; give it a time, such as 10s"
                yield Problem(loc, why)


def _faults(cluster: Cluster, places: Mapping[str, str]) -> Iterator[Problem]:
    for index, text in enumerate(cluster.faults):
        try:
            check_target(parse(text), places)
        except ValueError as error:
            yield Problem(("faults", index), str(error))


def _pins(cluster: Cluster) -> Iterator[Problem]:
    holders: dict[int | str, str] = {}
    most = cluster.box.gpus
    for name, node in cluster.nodes.items():
        for index, pin in enumerate(node.pins):
            loc = ("nodes", name, "gpus", index)
            if pin in holders:
                where = "twice here" if holders[pin] == name else f"also given to {holders[pin]}"
                yield Problem(loc, f"GPU {pin} is {where}; give each GPU to one node")
            elif isinstance(pin, int) and most is not None and pin >= most:
                have = f"GPUs 0 to {most - 1}" if most else "no GPUs"
                yield Problem(loc, f"there is no GPU {pin}: the host has {have} (box.gpus)")
            holders.setdefault(pin, name)


def _box(cluster: Cluster) -> Iterator[Problem]:
    box, nodes = cluster.box, cluster.nodes
    requested = sum(node.gpu_count for node in nodes.values())
    if box.gpus is not None and requested > box.gpus:
        message = f"the nodes need {counted(requested, 'GPU')}, but the host has {box.gpus}"
        yield Problem(("box", "gpus"), message)
    cpus = sum(node.cpus or 0 for node in nodes.values())
    if box.cpus is not None and cpus > box.cpus:
        message = f"the nodes need {cpus:g} CPUs, but the host has {box.cpus}"
        yield Problem(("box", "cpus"), message)
    for name, node in nodes.items():
        if box.memory is not None and (node.memory or 0) > box.memory:
            yield Problem(("nodes", name, "memory"), "more than the host has (box.memory)")


def _ports(cluster: Cluster, slots: Mapping[str, list[TaskSlot]]) -> Iterator[Problem]:
    node, tasks = max(slots.items(), key=lambda slot: len(slot[1]))
    last = cluster.port + len(tasks) - 1
    if last > MAX_PORT:
        message = (
            f"the {len(tasks)} tasks on {node} would reach port {last}; the last port is "
            f"{MAX_PORT}, begin at {MAX_PORT - len(tasks) + 1} or below"
        )
        yield Problem(("port",), message)


def _allocations(cluster: Cluster, slots: Mapping[str, list[TaskSlot]]) -> Iterator[Problem]:
    ps = cluster.jobs.get(PS)
    if ps is not None and (ps.gpus or ps.share):
        return  # reported already; a second message would not help
    for name, node in cluster.nodes.items():
        if name in slots:
            try:
                allocate_gpus(name, node, slots[name])
            except ProblemError as error:
                yield from error.problems
