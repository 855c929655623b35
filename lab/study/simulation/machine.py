"""The shipped machine: measured costs of a step. Predictions of trainings, with their errors.

A run can calibrate them, by its speed and its cores.

`python -m benchmarks scaling` measures the trainings, fits the costs and prints these tables.
docs/explanation/scaling.md explains them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lab.base.errors import InputError
from lab.base.formatting import counted, pace
from lab.protocol.records.reader import STEPS, read_records
from lab.protocol.volume.states import State
from lab.runner.store.directory import RunDir, read_statuses, runs_path
from lab.runner.store.names import named_run
from lab.study.simulation.discrete_events import Costs, Shape, Way, simulate


class Machine(NamedTuple):
    """A machine whose costs are known.

    Attributes:
        label: What to call the machine: `AMD EPYC, 2 cores`, or the id of a run.
        cores: Its CPU cores.
        costs: The costs of a step.
        ratios: Step times, divided by their mean. Each service time is its cost times one of them,
            drawn at random.
        shapes: The trainings that calibrated the costs.
        is_run: Whether a run calibrated the costs.
    """

    label: str
    cores: int
    costs: Costs
    ratios: Sequence[float]
    shapes: tuple[Shape, ...]
    is_run: bool = False


RATIOS: Final = (
    0.858, 0.877, 0.887, 0.898, 0.906, 0.914, 0.920, 0.928, 0.936, 0.945,
    0.954, 0.963, 0.978, 0.996, 1.009, 1.030, 1.064, 1.107, 1.194, 1.636,
)  # fmt: skip
"""Measured step times, divided by their mean: the mean of each twentieth."""

SHIPPED: Final = Machine(
    label="AMD EPYC, 2 cores",
    cores=2,
    costs=Costs(
        worker_s=0.001679,
        call_s=0.0005813,
        serve_s=0.001285,
        after=0.9395,
        update=0.9589,
        ring_s=0.0004437,
        reduce_s=0.001051,
        hop_s=0.0005847,
        hop_wait_s=0.000552,
        image_s=3.129e-06,
    ),
    ratios=RATIOS,
    shapes=(
        *(Shape(way, n, ps) for way in (Way.ASYNC, Way.SYNC) for n, ps in ((1, 1), (2, 1), (2, 4))),
        *(Shape(Way.RING, workers, 0) for workers in (1, 2, 4)),
    ),
)
"""Fitted to the measurements of 2026-11-26 in `benchmarks/scaling.json`."""


FACTORS: Final = (1, 3)
"""The classes of predictions: the largest factor between predicted and calibrating tasks."""
ERRORS: Final[Mapping[tuple[Way, bool, int], float]] = {
    (Way.ASYNC, False, 3): 0.17,
    (Way.ASYNC, True, 1): 0.10,
    (Way.ASYNC, True, 3): 0.21,
    (Way.RING, False, 3): 0.23,
    (Way.RING, True, 3): 0.32,
    (Way.SYNC, False, 3): 0.21,
    (Way.SYNC, True, 1): 0.06,
    (Way.SYNC, True, 3): 0.19,
}
"""The way, whether a run calibrates, and the class: the relative error of the speed that 90% of
such predictions did not exceed. All are of one machine, and the percentile is of these predictions
themselves: others may be worse."""
VALIDATED: Final = {"core": 2, "worker": 16, "parameter server": 4}
"""The validated trainings have at most as many of each."""


def factor(shape: Shape, machine: Machine) -> float:
    """Return the factor to the nearest calibrating training: the larger of workers' and servers'.

    Fewer tasks count as more tasks do: half as many are two times.
    """

    def apart(one: int, other: int) -> float:
        return max(one, other) / max(1, min(one, other))

    alike = [known for known in machine.shapes if known.way is shape.way]
    return min(max(apart(shape.workers, own.workers), apart(shape.ps, own.ps)) for own in alike)


def error_of(shape: Shape, machine: Machine) -> float | None:
    """Return the error that covers 90% of such predictions in `ERRORS`; None if not known."""
    if unknown(shape, machine):
        return None
    far = factor(shape, machine)
    classes = ((shape.way, machine.is_run, most) for most in FACTORS if far <= most)
    return next((ERRORS[each] for each in classes if each in ERRORS), None)


def unknown(shape: Shape, machine: Machine) -> list[str]:
    """Return what of a prediction is outside the validated range."""
    counts = zip(VALIDATED.items(), (machine.cores, shape.workers, shape.ps), strict=True)
    return [
        f"{counted(count, noun)} (validated: up to {most})"
        for (noun, most), count in counts
        if count > most
    ]


class Prediction(NamedTuple):
    """One predicted training, as `lab simulate --json` prints it.

    Attributes:
        workers: The number of workers.
        ps: The number of parameter servers.
        steps_per_s: Global steps per second.
        images_per_s: Images of all workers per second.
        error: The relative error that covered 90% of such predictions on our machine, or None.
        not_validated: What of it is outside the validated range.
    """

    workers: int
    ps: int
    steps_per_s: float
    images_per_s: float
    error: float | None
    not_validated: Sequence[str]

    def cells(self) -> list[str]:
        """Return a row of the table of `lab simulate`."""
        error = "" if self.error is None else f" ±{self.error:.0%}"
        speeds = (pace(speed) + error for speed in (self.steps_per_s, self.images_per_s))
        return [str(self.workers), str(self.ps), *speeds]


def predict(
    way: Way,
    machine: Machine,
    workers: Sequence[int] | None,
    ps: Sequence[int] | None,
    seed: int = 0,
) -> list[Prediction]:
    """Predict a training for each number of workers and parameter servers.

    Args:
        way: How the workers share parameters.
        machine: The machine that calibrates.
        workers: Numbers of workers; None: as many as calibrate, and two and three times as many.
        ps: Numbers of parameter servers; None: as many as the run has, otherwise 1.
        seed: The seed of all random numbers.

    Raises:
        InputError: The numbers do not fit the way, or are too far from the calibrating ones.
    """
    if way is Way.RING and ps:
        raise InputError("multiworker has no parameter servers", "leave out --ps")
    own = [shape for shape in machine.shapes if shape.way is way]
    most = max(shape.workers for shape in own)
    counts = workers or (most, 2 * most, 3 * most)
    shapes = [Shape(way, count, servers) for servers in ps or (own[0].ps,) for count in counts]
    for shape in shapes:
        if factor(shape, machine) > FACTORS[-1]:
            tasks = f"{shape.workers} workers" + (f" with {shape.ps} ps" if shape.ps else "")
            what = f"{tasks} are not within {FACTORS[-1]} times the tasks of {machine.label}"
            raise InputError(what, "calibrate on a run with closer numbers, with --from RUN")
    return [_predict(shape, machine, seed) for shape in shapes]


def _predict(shape: Shape, machine: Machine, seed: int) -> Prediction:
    forecast = simulate(shape, machine.costs, machine.cores, machine.ratios, seed=seed)
    speed, batches = forecast.steps_per_s, 1 if shape.way is Way.ASYNC else shape.workers
    return Prediction(
        shape.workers, shape.ps, speed, speed * shape.batch_size * batches,
        error_of(shape, machine), unknown(shape, machine),
    )  # fmt: skip


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
        return _machine_of(run, way)
    except ValueError as error:
        raise InputError(
            f"run {run.run_id} cannot calibrate: {error}",
            f"use a longer run of `lab run {way.value} --model softmax --gpus none"
            " --cluster clusters/laptop.yaml`",
        ) from error


def _machine_of(run: RunDir, way: Way) -> Machine:
    """Return the machine of a run of this way.

    Raises:
        ValueError: The run cannot calibrate this prediction.
    """
    info = run.read()
    spec, plan, given = info.spec, info.plan or {}, info.hyperparameters
    cores = int(info.provenance.get("cpus", "0"))
    workers, ps = (len(info.cluster.get(job, ())) for job in ("worker", "ps"))
    statuses = read_statuses(run, info).values()
    used = min(cores, workers)  # by one task at once: a server serves each worker on one core
    reasons = {
        f"it is not a run of {way.value}": spec.own or spec.listing or spec.experiment != way.value,
        f"it is {info.state.value}, not succeeded": info.state is not State.SUCCEEDED,
        f"its model is {given.get('model')}": given.get("model") != "softmax",
        f"its batches do not have {BATCH} images": given.get("batch_size") != BATCH,
        "it used GPUs": info.gpus,
        "it has faults, or resumed another run": spec.faults or spec.resumed_from,
        "one of its tasks was restarted": any(status.attempt for status in statuses),
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
