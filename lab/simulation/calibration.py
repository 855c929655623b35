"""Calibrate the simulation on a run: on its speed and its cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lab.errors import InputError
from lab.records.reader import STEPS, read_records
from lab.simulation.machine import SHIPPED, Machine
from lab.simulation.model import Shape, Way, simulate
from lab.store.directory import RunDir, read_statuses, runs_path
from lab.store.names import named_run
from lab.store.run_info import RunInfo
from lab.volume.states import State

BATCH: Final = 100
"""Images in a batch of the validated trainings."""
LEAST_RECORDS: Final = 5

Records = Sequence[Mapping[str, Any]]


def together(workers: Sequence[Records]) -> list[Records]:
    """Return the step records of each worker while all of them trained.

    This time begins when every worker has written its first step record, and ends at the first
    worker's last one.

    Raises:
        ValueError: A worker has no step record.
    """
    steps = [[record for record in records if record["kind"] in STEPS] for records in workers]
    if not all(steps):
        raise ValueError("a worker has no step record")
    begin = max(records[0]["time_unix"] for records in steps)
    end = min(records[-1]["time_unix"] for records in steps)
    return [[one for one in records if begin <= one["time_unix"] <= end] for records in steps]


def speed_of(workers: Sequence[Records]) -> float:
    """Return the global steps per second while all workers trained.

    Args:
        workers: The records of each worker.

    Raises:
        ValueError: The workers have too few step records at the same time.
    """
    inside = (record for records in together(workers) for record in records)
    marks = sorted((record["time_unix"], record["global_step"]) for record in inside)
    if len(marks) < LEAST_RECORDS or marks[-1][0] <= marks[0][0]:
        raise ValueError("its workers have fewer than 5 step records while all of them train")
    return float((marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0]))


def calibrated(shape: Shape, cores: int, steps_per_s: float, label: str = "") -> Machine:
    """Return the machine of a run: the shipped machine's costs times a factor.

    With this factor, the simulation of the run has the measured speed: all times of a simulation
    are proportional to the costs.
    """
    simulated = simulate(shape, SHIPPED.costs, cores, SHIPPED.ratios).steps_per_s
    costs = SHIPPED.costs.scaled(simulated / steps_per_s)
    return Machine(label, cores, costs, SHIPPED.ratios, (shape,), is_run=True)


def machine_for(way: Way, name: str | None, runs_dir: str | None) -> Machine:
    """Return the machine of the named run, or the shipped one.

    Raises:
        InputError: The run cannot calibrate this way, or the argument names several.
        LabError: The run cannot be read.
    """
    if name is None:
        return SHIPPED
    run = named_run(name, runs_path(runs_dir))
    try:
        return _machine_of(run, run.read(), way)
    except ValueError as error:
        raise InputError(
            f"run {run.run_id} cannot calibrate: {error}",
            f"use a longer run of `lab run {way.value} --model softmax --gpus none"
            " --cluster clusters/laptop.yaml`",
        ) from error


def _machine_of(run: RunDir, info: RunInfo, way: Way) -> Machine:
    """Return the machine of a run of this way.

    Raises:
        ValueError: The run cannot calibrate this prediction.
    """
    spec, plan, given = info.spec, info.plan or {}, info.hyperparameters
    is_own = spec.own or spec.listing
    cores = int(info.provenance.get("cpus", "0"))
    workers, ps = (len(info.cluster.get(job, ())) for job in ("worker", "ps"))
    used = min(cores, workers)  # by one task at once: a server serves each worker on one core
    reasons = {
        f"it is not a run of {way.value}": is_own or spec.experiment != way.value,
        f"it is {info.state.value}, not succeeded": info.state is not State.SUCCEEDED,
        f"its model is {given.get('model')}": given.get("model") != "softmax",
        f"its batches are not of {BATCH} images": given.get("batch_size") != BATCH,
        "it used GPUs": info.gpus,
        "it has faults, or resumed another run": spec.faults or spec.resumed_from,
        "a task of it was started again": any(
            status.attempt for status in read_statuses(run, info).values()
        ),
        "its nodes have slow links": any(node["link"] for node in plan.get("nodes", ())),
        "its CPU limits slow its tasks": any(
            (task["cpus"] or used) < used for task in plan.get("tasks", ())
        ),
        "it does not record the cores of its host": not cores,
    }
    for reason, is_unfit in reasons.items():
        if is_unfit:
            raise ValueError(reason)
    speed = speed_of(
        [list(read_records(run.records(f"worker-{n}"), info.times)) for n in range(workers)]
    )
    shape = Shape(way, workers, 0 if way is Way.RING else ps)
    return calibrated(shape, cores, speed, f"run {run.run_id}")
