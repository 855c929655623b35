"""The validation of `lab simulate`: trainings that are measured and predicted, and the errors.

A few trainings calibrate the costs of the shipped machine. All others are held out. Each prediction
uses the shipped machine as it is, or scaled by one other training, as `lab simulate --from` does.
`benchmarks/scaling.json` keeps the trainings. The costs and the errors are printed as the tables of
`lab/study/simulation/machine.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

from benchmarks import pairs, results
from benchmarks.marks import put
from benchmarks.processes import Sample, ends, watched
from benchmarks.results import Outcome, Target, table
from benchmarks.trainings import (
    ROOT,
    Records,
    Setting,
    UnfitError,
    Workplace,
    common_time,
    json_records,
    print_progress,
)
from lab.base.formatting import pace
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.records import Record
from lab.study.simulation.discrete_events import Costs, Forecast, Shape, Way, simulate
from lab.study.simulation.machine import FACTORS, SHIPPED, Machine, factor, speed_of, together


@dataclass(frozen=True, slots=True)
class Case:
    """A training to measure.

    Attributes:
        way: The way, and the name of the experiment.
        workers: The number of workers.
        ps: The number of parameter servers.
        batch_size: Images in a batch.
        cores: The number of cores of this host that the run may use.
        singly: Whether each step is recorded.
    """

    way: Way
    workers: int
    ps: int = 0
    batch_size: int = 100
    cores: int = 2
    singly: bool = False

    @property
    def case(self) -> Case:
        """The training without its figures."""
        return Case(*(getattr(self, field.name) for field in fields(Case)))

    @property
    def shape(self) -> Shape:
        """The training, as the simulation describes it."""
        return Shape(self.way, self.workers, self.ps, self.batch_size)

    @property
    def name(self) -> str:
        """A short name: `async 2 x 1 ps, 1 core`."""
        parts = [f"{self.way} {self.workers}" + (f" x {self.ps} ps" if self.ps else "")]
        parts += [f"batch {self.batch_size}"] if self.batch_size != SINGLE.batch_size else []
        parts += ["1 core"] if self.cores == 1 else []
        return ", ".join([*parts, *(["each step recorded"] if self.singly else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Case):
    """A training's figures while all of its workers trained; an entry of `scaling.json`.

    Attributes:
        steps_per_s: Global steps per second.
        ratios: Times of single steps, divided by their mean; empty unless each step is recorded.
        seconds: The time between the first and the last sample.
        worker_cpu_s: CPU seconds of all workers' programs per global step.
        ps_cpu_s: CPU seconds of all parameter servers' programs per global step.
        taken: The mean number of cores that other work used, the client and agents included.
        load: The load average before the training.
    """

    steps_per_s: float
    ratios: tuple[float, ...]
    seconds: float
    worker_cpu_s: float
    ps_cpu_s: float
    taken: float
    load: float = 0.0

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> Measured:
        """Return the training of an entry of `scaling.json`."""
        return cls(**{**row, "ratios": tuple(row["ratios"]), "way": Way(row["way"])})


A, S, R = Way.ASYNC, Way.SYNC, Way.RING
SERVED: Final = (A, S)
CALIBRATING: Final = (
    *(Case(way, n, ps) for way in SERVED for n, ps in ((1, 1), (2, 1), (2, 4))),
    Case(A, 1, 1, batch_size=1),
    *(Case(R, n) for n in (1, 2, 4)),
)
"""The trainings that calibrate the shipped machine; with the step times of SINGLE."""
SINGLE: Final = Case(A, 1, 1, singly=True)
HELD_OUT: Final = (
    *(Case(way, n, ps) for way in SERVED for ps in (1, 2, 4) for n in (1, 2, 4, 8)),
    *(Case(way, 16, ps) for way in SERVED for ps in (1, 2)),
    *(Case(R, n) for n in (3, 6, 8, 16)),
    *(Case(way, n, 1, cores=1) for way in SERVED for n in (1, 2, 4, 8)),
    *(Case(R, n, cores=1) for n in (1, 2, 4, 8)),
)
AGAIN: Final = tuple(Case(way, n, ps) for way in SERVED for n, ps in ((4, 1), (4, 2), (8, 1)))
"""Held-out trainings that are measured twice: equal trainings differ, too."""
GRID: Final = (SINGLE, *dict.fromkeys((*CALIBRATING, *HELD_OUT)), *AGAIN)
QUICK: Final = (SINGLE, *CALIBRATING, Case(A, 4, 1), Case(S, 4, 1))

TRAIN_S, QUICK_S = 5.0, 2.5
LONG_ENOUGH: Final = 0.4
"""A training that took less than this share of the requested seconds is repeated."""
RECORDS: Final = 40  # records of each worker in a training, each with its global step
LEAST_STEPS: Final = 60
FIT_STEPS: Final = 200
"""Simulated steps of a fit, which draws no random numbers."""
RATIOS: Final = 20
"""The step times of the shipped machine: the mean of each twentieth of those measured."""
LEVEL: Final = 0.9
"""The printed error was not exceeded by this share of the class's predictions."""
LEAST: Final = 3
"""A class with fewer predictions is not validated."""

TARGET: Final = Target("at most", 0.15)
Train = Callable[[Workplace, Case, int, int], Measured]


def measure(setting: Setting, root: Path = ROOT) -> list[Outcome]:
    """Measure the grid; write its figures and the page, and print the tables of the code."""
    figures = trained(setting, QUICK if setting.quick else GRID, train)
    return outcomes(evaluate(figures)[1] if setting.quick else write(figures, root))


def trained(setting: Setting, cases: Sequence[Case], train: Train) -> dict[str, Any]:
    """Make trainings; return the content of `scaling.json`."""
    seconds = QUICK_S if setting.quick else TRAIN_S
    machine, when, began = results.host(ROOT), time.strftime("%Y-%m-%d %H:%M %Z"), time.monotonic()
    rows: list[dict[str, Any]] = []
    for number, case in enumerate(cases, start=1):
        load = round(os.getloadavg()[0], 1)
        found = replace(long_enough(setting.place, case, seconds, train), load=load)
        rows.append(asdict(found))
        print_progress(
            f"  {number} of {len(cases)}: {case.name}: {found.steps_per_s:,.1f} steps/s"
            f" for {found.seconds:.1f} s, other work used {found.taken:.2f} cores"
        )
    took_s = round(time.monotonic() - began)
    return {"when": when, "machine": machine, "took_s": took_s, "trainings": rows}


def long_enough(place: Workplace, case: Case, seconds: float, train: Train) -> Measured:
    """Train for about a given time; again if the expected speed was too low."""
    speed = simulate(case.shape, SHIPPED.costs, case.cores, steps=FIT_STEPS).steps_per_s
    while True:
        steps = max(LEAST_STEPS, round(speed * seconds))
        local = steps // case.workers if case.way is A else steps
        found = train(place, case, steps, 1 if case.singly else max(1, local // RECORDS))
        if found.seconds >= LONG_ENOUGH * seconds or found.steps_per_s <= speed:
            return found
        speed = found.steps_per_s


def train(place: Workplace, case: Case, steps: int, record_every: int) -> Measured:
    """Train softmax regression by `lab run` on local, including boot and removal.

    Raises:
        TrainingError: The run did not succeed.
        UnfitError: The training was too short.
    """
    folder = Path(tempfile.mkdtemp(prefix="shape-", dir=place.folder))
    for name in ("scripts", "data"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "cluster.yaml").write_text(json.dumps(config(case)), encoding="utf-8")
    cpus = ",".join(map(str, range(case.cores)))
    command = ["taskset", "-c", cpus, sys.executable, "-m", "lab", "run", case.way.value]
    command += ["--backend=local", "--gpus=none", "--cluster", str(folder / "cluster.yaml")]
    command += ["--runs-dir", str(folder / "runs"), "--model=softmax", "--seed=1"]
    command += [f"--global_steps={steps}", f"--record_every={record_every}"]
    command += [f"--batch_size={case.batch_size}"]
    program = EXPERIMENTS[case.way.value].program
    samples = watched(place, command, program, case.workers + case.ps)
    (run,) = (folder / "runs").iterdir()
    names = [f"worker-{index}" for index in range(case.workers)]
    return measured(
        case, {name: json_records(run / f"tasks/{name}.jsonl") for name in names}, samples
    )


def config(case: Case) -> dict[str, Any]:
    """Return the config: all tasks on one node."""
    counts = {"ps": case.ps, "worker": case.workers}
    return {
        "version": 1,
        "name": "lab-scaling",
        "nodes": {"tf1": {}},
        "jobs": {job: {"on": ["tf1"] * count} for job, count in counts.items() if count},
    }


def measured(case: Case, records: Records, samples: Sequence[Sample]) -> Measured:
    """Return the figures of a training; CPU times are those between samples while all trained.

    Raises:
        UnfitError: The workers have too few records, or there are fewer than two samples.
    """
    workers = list(records.values())
    try:
        speed = speed_of(workers)
    except ValueError as error:
        raise UnfitError(f"{error}; use more steps") from error
    first, last = ends(samples, *common_time(records))
    seconds = last.time_unix - first.time_unix

    def cpu_s(job: str) -> float:
        tasks = [task for task in last.cpu_s if task.startswith(f"{job}-")]
        return sum(last.cpu_s[task] - first.cpu_s[task] for task in tasks)

    programs_s, steps = cpu_s("worker") + cpu_s("ps"), speed * seconds
    return Measured(
        **asdict(case),
        steps_per_s=speed,
        ratios=_ratios(workers) if case.singly else (),
        seconds=seconds,
        worker_cpu_s=cpu_s("worker") / steps,
        ps_cpu_s=cpu_s("ps") / steps,
        # Both are counted in clock ticks, so the difference can be slightly below 0.
        taken=max(0.0, last.busy_s - first.busy_s - programs_s) / seconds,
    )


def _ratios(workers: Sequence[Sequence[Record]]) -> tuple[float, ...]:
    """Return the times of single steps, divided by their mean."""
    times = [
        new["elapsed_s"] - old["elapsed_s"]
        for records in together(workers)
        for old, new in pairwise(records)
    ]
    return tuple(sorted(round(time / mean(times), 4) for time in times))


def shipped(found: Sequence[Measured], label: str) -> Machine:
    """Return the machine whose costs give the figures of the calibrating trainings."""
    used = {each.case: each for each in found if each.case in CALIBRATING}
    (single,) = [each for each in found if each.singly]
    one, tiny = used[Case(A, 1, 1)], used[Case(A, 1, 1, batch_size=1)]
    image_s = max(0.0, one.worker_cpu_s - tiny.worker_cpu_s) / 99
    served = [each for each in used.values() if each.ps and each is not tiny]
    ring = [each for each in used.values() if not each.ps]
    begin = {"worker_s": 2e-3, "call_s": 1e-3, "serve_s": 2e-3, "after": 0.5, "update": 0.5}
    costs = _fitted(served, begin, Costs(image_s=image_s))
    begin = {"ring_s": 5e-4, "reduce_s": 2e-3, "hop_s": 1e-3, "hop_wait_s": 1e-3}
    costs = _rounded(_fitted(ring, begin, costs))
    shapes = tuple(case.shape for case in used if case.batch_size == SINGLE.batch_size)
    return Machine(label, one.cores, costs, _means(single.ratios), shapes)


def _rounded(costs: Costs) -> Costs:
    return Costs(**{name: float(f"{value:.4g}") for name, value in asdict(costs).items()})


def _means(ratios: Sequence[float]) -> tuple[float, ...]:
    """Return the mean of each of `RATIOS` parts of sorted ratios."""
    if len(ratios) <= RATIOS:
        return tuple(ratios)
    return tuple(round(float(part.mean()), 3) for part in np.array_split(sorted(ratios), RATIOS))


def _fitted(found: Sequence[Measured], begin: Mapping[str, float], costs: Costs) -> Costs:
    """Return costs with the least squares of the logarithms of simulated / measured figures."""

    def at(logs: Sequence[float]) -> Costs:
        values = dict(zip(begin, np.exp(logs).tolist(), strict=True))
        return replace(costs, **values | {"after": min(1.0, values.get("after", costs.after))})

    def off(logs: Sequence[float]) -> list[float]:
        errors = []
        for each in found:
            forecast = simulate(each.shape, at(logs), each.cores, steps=FIT_STEPS)
            errors.append(forecast.steps_per_s / each.steps_per_s)
            errors.append(forecast.worker_cpu_s / each.worker_cpu_s)
            errors += [forecast.ps_cpu_s / each.ps_cpu_s] if each.ps_cpu_s else []
        return np.log(errors).tolist()

    return at(least_squares(off, np.log(list(begin.values())), diff_step=0.01).x)


@dataclass(frozen=True, slots=True)
class Trial:
    """A prediction, and the training that was measured.

    Attributes:
        measured: The training.
        forecast: The prediction.
        is_run: Whether a training calibrated the prediction; otherwise the shipped machine.
        factor: The class of the prediction, one of `FACTORS`.
    """

    measured: Measured
    forecast: Forecast
    is_run: bool
    factor: int

    @property
    def off(self) -> float:
        """The measured speed, relative to the predicted one, minus 1."""
        return self.measured.steps_per_s / self.forecast.steps_per_s - 1


def evaluate(figures: Mapping[str, Any]) -> tuple[Machine, list[Trial]]:
    """Return the shipped machine; predict each held-out training from it, and from others."""
    measured = [Measured.of_json(row) for row in figures["trainings"]]
    machine = shipped(measured, f"{figures['machine']['cpu']}, {figures['machine']['cores']} cores")
    return machine, predicted(machine, measured)


def predicted(machine: Machine, trainings: Sequence[Measured]) -> list[Trial]:
    """Predict each held-out training from the shipped machine, and from others.

    A calibration scales all costs, so it only scales the speed that the shipped machine has.
    """

    @cache
    def shipped_speed(shape: Shape, cores: int) -> Forecast:
        return simulate(shape, machine.costs, cores, machine.ratios)

    held_out = [
        each for each in trainings if each.case in HELD_OUT and each.case not in CALIBRATING
    ]
    plain = [each for each in trainings if not each.singly and each.batch_size != 1]
    trials = []
    for source in (None, *plain):
        own, scale = machine, 1.0
        if source:
            own = machine._replace(cores=source.cores, shapes=(source.shape,))
            scale = source.steps_per_s / shipped_speed(source.shape, source.cores).steps_per_s
        for each in held_out:
            if each is source or each.cores != own.cores or (source and source.way != each.way):
                continue
            if near := [most for most in FACTORS if factor(each.shape, own) <= most]:
                base = shipped_speed(each.shape, each.cores)
                forecast = base._replace(steps_per_s=scale * base.steps_per_s)
                trials.append(Trial(each, forecast, source is not None, near[0]))
    return trials


@dataclass(frozen=True, slots=True)
class Class:
    """The errors of a class of predictions.

    Attributes:
        way: The way.
        is_run: Whether a training calibrated them.
        factor: The largest factor between predicted and calibrating tasks.
        predictions: Their number.
        median: The median error.
        error: The error that `LEVEL` of them do not exceed.
    """

    way: Way
    is_run: bool
    factor: int
    predictions: int
    median: float
    error: float


def classes(trials: Iterable[Trial]) -> list[Class]:
    """Return the classes with enough predictions."""
    groups: dict[tuple[Way, bool, int], list[Trial]] = {}
    for each in trials:
        groups.setdefault((each.measured.way, each.is_run, each.factor), []).append(each)
    return [_class(key, group) for key, group in sorted(groups.items()) if len(group) >= LEAST]


def _class(key: tuple[Way, bool, int], trials: Sequence[Trial]) -> Class:
    errors = [abs(each.off) for each in trials]
    return Class(*key, len(trials), median(errors), quantile(errors))


def quantile(errors: Sequence[float]) -> float:
    """Return the smallest error that `LEVEL` of the errors do not exceed."""
    return sorted(errors)[ceil(LEVEL * len(errors)) - 1]


def outcomes(trials: Sequence[Trial]) -> list[Outcome]:
    """Return the errors of the predictions that a run calibrated, for each way."""
    near: dict[Way, list[float]] = {}
    for each in trials:
        if each.is_run:
            near.setdefault(each.measured.way, []).append(abs(each.off))
    return [
        Outcome(
            key=f"simulation-{way.value}",
            what=f"{way.value}: measured against predicted global steps/s, relative error",
            unit="ratio",
            target=TARGET,
            found=pairs.range_of(errors),
            how="Within three times the tasks of the run that calibrates:"
            " docs/explanation/scaling.md.",
            repeated=False,
        )
        for way, errors in near.items()
    ]


def write(figures: Mapping[str, Any], root: Path = ROOT) -> list[Trial]:
    """Write the figures and the page; print the tables of `lab/study/simulation/machine.py`.

    Args:
        figures: The content of `scaling.json`.
        root: The project's directory.
    """
    machine, trials = evaluate(figures)
    print_progress(code(machine, trials))
    (root / "benchmarks/scaling.json").write_text(f"{json.dumps(figures, indent=1)}\n", "utf-8")
    page = root / "docs/explanation/scaling.md"
    text = put(page.read_text("utf-8"), "errors", errors_table(trials))
    page.write_text(put(text, "trainings", trainings_table(figures, trials)), "utf-8")
    return trials


def code(machine: Machine, trials: Iterable[Trial]) -> str:
    """Return the costs, the step times and the errors as they stand in the code."""
    rows = [
        f"    (Way.{each.way.name}, {each.is_run}, {each.factor}): {each.error:.2f},"
        for each in classes(trials)
    ]
    return "\n".join([f"{machine.costs}", f"ratios={machine.ratios}", "ERRORS = {", *rows, "}"])


def errors_table(trials: Sequence[Trial]) -> str:
    """Return the table of the classes, and the verdict of each way."""
    head = ["way", "calibrated on", "factor", "predictions"]
    rows = [
        [
            each.way.value,
            "a run" if each.is_run else "shipped machine",
            "1" if each.factor == 1 else f"up to {each.factor}",
            str(each.predictions),
            f"{each.median:.0%}",
            f"±{each.error:.0%}",
        ]
        for each in classes(trials)
    ]
    found = [
        f"- {each.what}: {each.found.median:.1%} of {len(each.found.values)} predictions;"
        f" {each.verdict()}"
        for each in outcomes(trials)
        if each.found
    ]
    return "\n".join([table([*head, "median error", "printed error"], rows, "---:"), *found, ""])


def trainings_table(figures: Mapping[str, Any], trials: Sequence[Trial]) -> str:
    """Return the table of all trainings, with the errors of the predictions."""
    machine, rows = figures["machine"], [Measured.of_json(row) for row in figures["trainings"]]
    busiest, loads = max(each.taken for each in rows), [each.load for each in rows]
    head = ["training", "measured steps/s", "other work", "shipped machine", "a run"]
    about = (
        f"{len(rows)} trainings, {figures['when']}, {machine['cpu']}, {machine['cores']} cores,"
        f" TensorFlow {machine['tensorflow']}. Other work used {busiest:.2f} cores at most. The"
        f" load average before a training was {min(loads)} to {max(loads)}; the trainings"
        " themselves are part of it."
    )
    cells = [_training(each, [one for one in trials if one.measured == each]) for each in rows]
    return f"{about}\n\n{table(head, cells, '---:')}"


def _training(found: Measured, trials: Sequence[Trial]) -> list[str]:
    calibrates = found.singly or found.case in CALIBRATING
    offs = [each.off for each in trials if each.is_run]
    return [
        found.name + (" *" if calibrates else ""),
        pace(found.steps_per_s),
        f"{found.taken:.2f}",
        "".join(f"{each.off:+.0%}" for each in trials if not each.is_run),
        f"{min(offs):+.0%} to {max(offs):+.0%}" if offs else "",
    ]
