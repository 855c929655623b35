"""Calibrate the simulation on a run: its speed, the spread of its step times, its cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean
from typing import Any, Final

from lab.errors import InputError
from lab.records.reader import STEPS, read_records
from lab.simulation.engine import simulate
from lab.simulation.model import Host, Machine, Shape, Way
from lab.store.directory import RunDir, read_statuses
from lab.store.run_info import RunInfo
from lab.volume.states import State

LEAST_RECORDS: Final = 5
MOST_RATIOS: Final = 500
CLOSE: Final = 0.005
"""The scaled costs give the speed of the run within this share."""

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Speed:
    """What the records of a run show about its steps.

    Attributes:
        steps_per_s: Global steps per second while all workers trained.
        ratios: Times of single steps, divided by their mean; empty if the records have only means
            over several steps.
        staleness: The mean staleness of the recorded steps, or None.
    """

    steps_per_s: float
    ratios: tuple[float, ...]
    staleness: float | None


def speed_of(workers: Sequence[Records]) -> Speed:
    """Return the speed of a training while all its workers trained.

    The interval begins when every worker has written its first step record, and ends at the first
    worker's last one.

    Args:
        workers: The records of each worker.

    Raises:
        ValueError: The workers have too few step records at the same time.
    """
    steps = [[each for each in records if each["kind"] in STEPS] for records in workers]
    if not steps or not all(steps):
        raise ValueError("a worker has no step record")
    begin = max(each[0]["time_unix"] for each in steps)
    end = min(each[-1]["time_unix"] for each in steps)
    inside = [[each for each in of if begin <= each["time_unix"] <= end] for of in steps]
    marks = sorted((each["time_unix"], each["global_step"]) for of in inside for each in of)
    if len(marks) < LEAST_RECORDS or marks[-1][0] <= marks[0][0]:
        raise ValueError("its workers have fewer than 5 step records while all of them train")
    rate = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    times = [
        new["elapsed_s"] - old["elapsed_s"]
        for of in inside
        for old, new in pairwise(of)
        if new["local_step"] == old["local_step"] + 1
    ]
    some = (
        times[:: len(times) // MOST_RATIOS + 1] if len(times) >= sum(map(len, inside)) / 2 else []
    )
    stale = [each["staleness"] for of in inside for each in of if "staleness" in each]
    return Speed(
        steps_per_s=rate,
        ratios=tuple(sorted(each / mean(some) for each in some)),
        staleness=mean(stale) if stale else None,
    )


def calibrated(shape: Shape, host: Host, speed: Speed, shipped: Machine) -> Machine:
    """Return the machine of a run: the shipped machine's costs times a factor.

    With this factor, the simulation of the run has the measured speed.

    Args:
        shape: The run's training.
        host: The run's host.
        speed: The run's speed. Without single step times the shipped machine's spread is used.
        shipped: The machine whose proportions of costs are used.

    Raises:
        ValueError: No factor gives this speed: the run's links limit it.
    """
    ratios = speed.ratios or shipped.ratios
    factor, found = 1.0, 0.0
    for _ in range(30):
        found = simulate(shape, shipped.costs.scaled(factor), host, ratios).steps_per_s
        if abs(found / speed.steps_per_s - 1) < CLOSE:
            costs = shipped.costs.scaled(factor)
            return replace(shipped, costs=costs, ratios=ratios, shapes=(shape,), host=host)
        factor *= found / speed.steps_per_s
        if factor < 1e-3:  # noqa: PLR2004  (a thousand times as fast: only the links remain)
            break
    raise ValueError("its links limit its speed, so it does not show the speed of the cores")


def machine_of(run: RunDir, way: Way, cores: int | None, shipped: Machine) -> Machine:
    """Return the machine of a run.

    Args:
        run: The run.
        way: The way to predict, which must be the run's.
        cores: The cores of its host, if the run does not record them.
        shipped: The machine whose proportions of costs are used.

    Raises:
        InputError: The run cannot calibrate this prediction.
        LabError: The run cannot be read.
    """
    info = run.read()
    for reason, fix in _unfit(run, info, way):
        raise InputError(f"run {run.run_id} cannot calibrate: {reason}", fix)
    known = int(info.provenance.get("cpus", "0")) or cores
    if not known:
        reason = "it does not record the cores of its host"
        raise InputError(f"run {run.run_id} cannot calibrate: {reason}", "add --cores N")
    links = {each["link"] and _link(each["link"]) for each in (info.plan or {}).get("nodes", ())}
    nodes = [row["node"] for row in info.tasks]
    bandwidth, latency_s = next(iter(links)) or (float("inf"), 0.0)
    counts = {job: len(hosts) for job, hosts in info.cluster.items()}
    shape = Shape(way, counts["worker"], counts.get("ps", 0), info.hyperparameters["batch_size"])
    order = sorted(range(len(nodes)), key=lambda each: info.tasks[each]["task"][:2] != "ps")
    numbers = tuple(list(dict.fromkeys(nodes)).index(nodes[each]) for each in order)
    host = Host(known, bandwidth, latency_s, nodes=numbers)
    workers = [list(read_records(run.records(f"worker-{n}"))) for n in range(shape.workers)]
    try:
        speed = speed_of(workers)
        return replace(calibrated(shape, host, speed, shipped), label=f"run {run.run_id}")
    except ValueError as error:
        fix = "use a run with more steps, and without slow links"
        raise InputError(f"run {run.run_id} cannot calibrate: {error}", fix) from None


def _link(link: Mapping[str, Any]) -> tuple[float, float]:
    rate, delay = link.get("rate_bits"), link.get("delay_us")
    return (rate / 8 if rate else float("inf"), (delay or 0) / 1e6)


def _unfit(run: RunDir, info: RunInfo, way: Way) -> Iterator[tuple[str, str]]:
    """Yield each reason why a run cannot calibrate, and how to fix it."""
    spec, plan, again = info.spec, info.plan or {}, f"use a run of `lab run {way.value}`"
    if spec.own or spec.listing or spec.experiment not in set(Way):
        yield f"it is not a run of {', '.join(Way)}", again
    if spec.experiment != way.value:
        yield f"it is {spec.experiment}, not {way.value}", again
    if info.state is not State.SUCCEEDED:
        yield f"it is {info.state.value}, not succeeded", "use a run that has succeeded"
    if (model := info.hyperparameters.get("model")) != "softmax":
        yield f"its model is {model}", f"use a run of `lab run {way.value} --model softmax`"
    if info.gpus:
        yield "it used GPUs", f"{again} --gpus none"
    if spec.faults or spec.resumed_from:
        yield "it has faults, or resumed another run", again
    if any(each.attempt for each in read_statuses(run, info).values()):
        yield "a task of it was started again", again
    if len({str(each["link"]) for each in plan.get("nodes", ())}) != 1:
        yield "its nodes have different links", "use a run whose nodes have the same links"
    if any(each["cpus"] for each in plan.get("tasks", ())):
        yield "its tasks have CPU limits", "use a run without `cpus` in its config"
