"""The validation of `lab simulate`: trainings that are measured and predicted, and the errors.

A few trainings calibrate the costs of the shipped machine. All others are held out. Each prediction
uses the shipped machine as it is, or scaled by one other training, as `lab simulate --from` does.
`benchmarks/scaling.json` keeps the trainings, and `lab/simulation/machine.json` the errors.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

from benchmarks import pairs, results
from benchmarks.marks import put
from benchmarks.processes import Sample, ends, watched
from benchmarks.results import Outcome, Target, table
from benchmarks.trainings import (
    ROOT,
    TIMEOUT_S,
    Records,
    Setting,
    UnfitError,
    Workplace,
    common_time,
    json_records,
    print_progress,
)
from lab.experiments.registry import EXPERIMENTS
from lab.formatting import rate
from lab.simulation.calibration import Speed, calibrated, speed_of
from lab.simulation.engine import simulate
from lab.simulation.model import Costs, Forecast, Host, Machine, Shape, Way
from lab.simulation.validation import SHIPPED, Kind, kind_of


@dataclass(frozen=True, slots=True)
class Case:
    """A training to measure.

    Attributes:
        way: The way, and the name of the experiment.
        workers: The number of workers.
        ps: The number of parameter servers.
        batch_size: Images in a batch.
        shares: The speed of each worker; a share below 1 slows it by the fault `slow`.
        cores: The number of cores of this host that the run may use.
        mbit: The rate of each node's link in Mbit/s; None: no limit, and all tasks on one node.
        singly: Whether each step is recorded.
    """

    way: Way
    workers: int
    ps: int = 0
    batch_size: int = 100
    shares: tuple[float, ...] = ()
    cores: int = 2
    mbit: float | None = None
    singly: bool = False

    @property
    def case(self) -> Case:
        """The training without its figures."""
        return Case(*(getattr(self, each.name) for each in fields(Case)))

    @property
    def shape(self) -> Shape:
        """The training, as the simulation describes it."""
        return Shape(self.way, self.workers, self.ps, self.batch_size, shares=self.shares)

    @property
    def host(self) -> Host:
        """The host, as the simulation describes it."""
        return Host(self.cores, self.mbit * 1e6 / 8 if self.mbit else float("inf"))

    @property
    def name(self) -> str:
        """A short name: `async 2 x 1 ps, 1 core, 20 Mbit/s`."""
        parts = [f"{self.way} {self.workers}" + (f" x {self.ps} ps" if self.ps else "")]
        parts += [f"batch {self.batch_size}"] if self.batch_size != SINGLE.batch_size else []
        parts += ["1 core"] if self.cores == 1 else []
        parts += [f"{self.mbit:.0f} Mbit/s"] if self.mbit else []
        parts += [f"worker {n} {share:.0%}" for n, share in enumerate(self.shares) if share < 1]
        return ", ".join([*parts, *(["each step recorded"] if self.singly else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Case):
    """A training's figures while all of its workers trained; an entry of `scaling.json`.

    Attributes:
        steps_per_s: Global steps per second.
        staleness: The mean staleness of the recorded steps, or None.
        ratios: Times of single steps, divided by their mean; empty unless each step is recorded.
        seconds: The time between the first and the last sample.
        worker_cpu_s: CPU seconds of all workers' programs per global step.
        ps_cpu_s: CPU seconds of all parameter servers' programs per global step.
        taken: The mean number of cores that other work used, the client and agents included.
        load: The load average before the training.
    """

    steps_per_s: float
    staleness: float | None
    ratios: tuple[float, ...]
    seconds: float
    worker_cpu_s: float
    ps_cpu_s: float
    taken: float
    load: float = 0.0

    @classmethod
    def of_json(cls, row: Mapping[str, Any]) -> Measured:
        """Return the training of an entry of `scaling.json`."""
        lists = {name: tuple(row[name]) for name in ("shares", "ratios")}
        return cls(**{**row, **lists, "way": Way(row["way"])})

    @property
    def speed(self) -> Speed:
        """What `lab simulate --from` reads from the run."""
        return Speed(self.steps_per_s, self.ratios, self.staleness)


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
    *(Case(way, n, 1, mbit=mbit) for way in SERVED for mbit in (20, 100) for n in (1, 4)),
    *(Case(way, n, 1, shares=(1.0, 0.5)) for way in SERVED for n in (2, 4)),
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
LEVEL: Final = 0.9
"""The printed error was not exceeded by this share of the class's predictions."""
LEAST: Final = 3
"""A class with fewer predictions is not validated."""

TARGET: Final = Target("at most", 0.15)
Train = Callable[[Workplace, Case, int, int], Measured]


def measure(setting: Setting, root: Path = ROOT) -> list[Outcome]:
    """Measure the grid; write its figures, the shipped machine with its errors, and the page."""
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
    speed = simulate(case.shape, SHIPPED.machine.costs, case.host, steps=FIT_STEPS).steps_per_s
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
    for number, share in enumerate(case.shares):
        if share < 1:
            command += ["--fault", f"slow:{share:g},{TIMEOUT_S}s worker-{number}"]
    program = EXPERIMENTS[case.way.value].program
    samples = watched(place, command, program, case.workers + case.ps)
    (run,) = (folder / "runs").iterdir()
    names = [f"worker-{index}" for index in range(case.workers)]
    return measured(
        case, {name: json_records(run / f"tasks/{name}.jsonl") for name in names}, samples
    )


def config(case: Case) -> dict[str, Any]:
    """Return the config: all tasks on one node, or with links each on a node of its own."""
    count = case.ps + case.workers
    names = [f"tf{number + 1}" for number in range(count)] if case.mbit else ["tf1"] * count
    jobs = {"ps": names[: case.ps], "worker": names[case.ps :]}
    links = {name: {"rate": f"{case.mbit * 1e3:.0f}kbit"} for name in names} if case.mbit else {}
    return {
        "version": 1,
        "name": "lab-scaling",
        "nodes": {name: {} for name in names},
        "jobs": {job: {"on": on} for job, on in jobs.items() if on},
        **({"links": links} if links else {}),
    }


def measured(case: Case, records: Records, samples: Sequence[Sample]) -> Measured:
    """Return the figures of a training; CPU times are those between samples while all trained.

    Raises:
        UnfitError: The workers have too few records, or there are fewer than two samples.
    """
    try:
        speed = speed_of(list(records.values()))
    except ValueError as error:
        raise UnfitError(f"{error}; use more steps") from error
    first, last = ends(samples, *common_time(records))
    seconds = last.time_unix - first.time_unix

    def cpu_s(job: str) -> float:
        tasks = [task for task in last.cpu_s if task.startswith(f"{job}-")]
        return sum(last.cpu_s[task] - first.cpu_s[task] for task in tasks)

    programs_s, steps = cpu_s("worker") + cpu_s("ps"), speed.steps_per_s * seconds
    return Measured(
        **asdict(case),
        **asdict(speed),
        seconds=seconds,
        worker_cpu_s=cpu_s("worker") / steps,
        ps_cpu_s=cpu_s("ps") / steps,
        # Both are counted in clock ticks, so the difference can be slightly below 0.
        taken=max(0.0, last.busy_s - first.busy_s - programs_s) / seconds,
    )


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
    costs = _fitted(ring, begin, costs)
    return Machine(costs, single.ratios, tuple(case.shape for case in used), one.host, label)


def _fitted(found: Sequence[Measured], begin: Mapping[str, float], costs: Costs) -> Costs:
    """Return costs with the least squares of the logarithms of simulated / measured figures."""

    def at(logs: Sequence[float]) -> Costs:
        values = dict(zip(begin, np.exp(logs).tolist(), strict=True))
        return replace(costs, **values | {"after": min(1.0, values.get("after", costs.after))})

    def off(logs: Sequence[float]) -> list[float]:
        errors = []
        for each in found:
            forecast = simulate(each.shape, at(logs), each.host, steps=FIT_STEPS)
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
        is_shipped: Whether the shipped machine predicted; otherwise a training calibrated it.
        kind: The kind of the prediction, or None.
    """

    measured: Measured
    forecast: Forecast
    is_shipped: bool
    kind: Kind | None

    @property
    def off(self) -> float:
        """The measured speed, relative to the predicted one, minus 1."""
        return self.measured.steps_per_s / self.forecast.steps_per_s - 1

    @property
    def stale_off(self) -> float | None:
        """The same for the staleness; None if there is none."""
        found, wanted = self.forecast.staleness, self.measured.staleness
        return wanted / found - 1 if found and wanted is not None else None


def evaluate(figures: Mapping[str, Any]) -> tuple[Machine, list[Trial]]:
    """Return the shipped machine; predict each held-out training from it, and from others."""
    found = [Measured.of_json(row) for row in figures["trainings"]]
    machine = shipped(found, f"{figures['machine']['cpu']}, {figures['machine']['cores']} cores")
    held_out = [each for each in found if each.case in HELD_OUT and each.case not in CALIBRATING]
    plain = [
        one for one in found if not (one.mbit or one.shares or one.singly or one.batch_size == 1)
    ]
    trials = []
    for source in (None, *plain):
        own = calibrated(source.shape, source.host, source.speed, machine) if source else machine
        for each in held_out:
            if each is source or (source and source.way is not each.way):
                continue
            forecast = simulate(each.shape, own.costs, each.host, own.ratios, steps=500)
            kind = kind_of(own, each.shape, each.host, shipped=source is None)
            trials.append(Trial(each, forecast, source is None, kind))
    return machine, trials


def classes(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return the errors of each class, as the file keeps them."""
    groups: dict[Kind, list[Trial]] = {}
    for each in trials:
        if each.kind:
            groups.setdefault(each.kind, []).append(each)
    order = sorted(groups, key=lambda kind: (kind.way, kind.shipped, kind.change, kind.times))
    return [_class(kind, groups[kind]) for kind in order if len(groups[kind]) >= LEAST]


def _class(kind: Kind, trials: Sequence[Trial]) -> dict[str, Any]:
    errors = [abs(each.off) for each in trials]
    stale = [abs(each.stale_off) for each in trials if each.stale_off is not None]
    own = [each.measured for each in trials]
    return {
        "way": kind.way.value,
        "shipped": kind.shipped,
        "change": kind.change,
        "times": kind.times,
        "predictions": len(trials),
        "median": round(median(errors), 4),
        "error": round(quantile(errors), 4),
        "staleness": round(quantile(stale), 4) if stale else None,
        "workers": max(each.workers for each in own),
        "ps": max(each.ps for each in own),
        "share": min(min(each.shares, default=1.0) for each in own),
        "cores": sorted({each.cores for each in own}),
        "bandwidth": sorted({each.host.bandwidth for each in own if kind.change == "links"}),
    }


def quantile(errors: Sequence[float]) -> float:
    """Return the smallest error that `LEVEL` of the errors do not exceed."""
    return sorted(errors)[ceil(LEVEL * len(errors)) - 1]


def outcomes(trials: Sequence[Trial]) -> list[Outcome]:
    """Return the errors within three times, calibrated on a run, for each way."""
    near: dict[Way, list[float]] = {}
    for each in trials:
        if (kind := each.kind) and not kind.shipped and not kind.change and kind.times <= 3:  # noqa: PLR2004
            near.setdefault(kind.way, []).append(abs(each.off))
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
    """Write the figures, the shipped machine with its errors, and the pages.

    Args:
        figures: The content of `scaling.json`.
        root: The project's directory.
    """
    machine, trials = evaluate(figures)
    shapes = [
        {"way": each.way.value, "workers": each.workers, "ps": each.ps}
        for each in machine.shapes
        if each.batch_size == SINGLE.batch_size
    ]
    raw = {
        "label": machine.label,
        "when": figures["when"],
        "cores": machine.host.cores,
        "costs": asdict(machine.costs),
        "ratios": [round(each, 4) for each in machine.ratios],
        "shapes": shapes,
        "errors": classes(trials),
    }
    (root / "benchmarks/scaling.json").write_text(f"{json.dumps(figures, indent=1)}\n", "utf-8")
    (root / "lab/simulation/machine.json").write_text(f"{json.dumps(raw, indent=1)}\n", "utf-8")
    page = root / "docs/explanation/scaling.md"
    text = put(page.read_text("utf-8"), "errors", errors_table(trials))
    page.write_text(put(text, "trainings", trainings_table(figures, trials)), "utf-8")
    return trials


def errors_table(trials: Sequence[Trial]) -> str:
    """Return the table of the classes, and the verdict of each way."""
    head = ["way", "calibrated on", "factor", "change", "predictions"]
    rows = [
        [
            row["way"],
            "shipped machine" if row["shipped"] else "a run",
            {1: "1", 3: "up to 3", 8: "3 to 8"}[row["times"]],
            row["change"] or "none",
            str(row["predictions"]),
            f"{row['median']:.0%}",
            f"±{row['error']:.0%}",
            "" if row["staleness"] is None else f"±{row['staleness']:.0%}",
        ]
        for row in classes(trials)
    ]
    found = [
        f"- {each.what}: {each.found.median:.1%} of {len(each.found.values)} predictions;"
        f" {each.verdict()}"
        for each in outcomes(trials)
        if each.found
    ]
    return "\n".join(
        [table([*head, "median error", "printed error", "staleness"], rows, "---:"), *found, ""]
    )


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
    speed = f"{found.steps_per_s:.2f}" if found.steps_per_s < 10 else rate(found.steps_per_s)  # noqa: PLR2004
    offs = [each.off for each in trials if each.kind and not each.is_shipped]
    return [
        found.name + (" *" if calibrates else ""),
        speed,
        f"{found.taken:.2f}",
        "".join(f"{each.off:+.0%}" for each in trials if each.is_shipped),
        f"{min(offs):+.0%} to {max(offs):+.0%}" if offs else "",
    ]
