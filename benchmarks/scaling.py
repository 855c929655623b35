"""The speed of trainings, measured and predicted: the errors that `lab simulate` prints.

A few trainings calibrate the costs of the shipped machine. All others are held out. Each prediction
uses the shipped machine as it is, or scaled by one other training, as `lab simulate --from` does.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import least_squares

from benchmarks import pairs, scaling_page
from benchmarks.machine import describe
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.shapes import Case, Measured, train
from benchmarks.trainings import ROOT
from benchmarks.trials import Trial, classes
from lab.simulation import Costs, Host, Machine, Shape, Way, simulate
from lab.simulation.calibration import Speed, calibrated
from lab.simulation.validation import SHIPPED

TWO, ONE = Host(2), Host(1)
LINKS: Final = tuple(Host(2, bandwidth=mbit * 1e6 / 8) for mbit in (20, 100))
SERVED: Final = (Way.ASYNC, Way.SYNC)
A, S, R = Way.ASYNC, Way.SYNC, Way.RING

CALIBRATING: Final = tuple(
    Case(shape, TWO)
    for shape in (
        *(Shape(way, n, ps) for way in SERVED for n, ps in ((1, 1), (2, 1), (2, 4))),
        Shape(A, 1, 1, batch_size=1),
        *(Shape(R, n, 0) for n in (1, 2, 4)),
    )
)
"""The trainings that calibrate the shipped machine; with the step times of SINGLE."""
SINGLE: Final = Case(Shape(A, 1, 1), TWO, singly=True)
HELD_OUT: Final = (
    *(Case(Shape(way, n, ps), TWO) for way in SERVED for ps in (1, 2, 4) for n in (1, 2, 4, 8)),
    *(Case(Shape(way, 16, ps), TWO) for way in SERVED for ps in (1, 2)),
    *(Case(Shape(R, n, 0), TWO) for n in (3, 6, 8, 16)),
    *(Case(Shape(way, n, 1), ONE) for way in SERVED for n in (1, 2, 4, 8)),
    *(Case(Shape(R, n, 0), ONE) for n in (1, 2, 4, 8)),
    *(Case(Shape(way, n, 1), link) for way in SERVED for link in LINKS for n in (1, 4)),
    *(Case(Shape(way, n, 1, shares=(1.0, 0.5)), TWO) for way in SERVED for n in (2, 4)),
)
GRID: Final = (SINGLE, *dict.fromkeys((*CALIBRATING, *HELD_OUT)))
QUICK: Final = (SINGLE, *CALIBRATING, Case(Shape(A, 4, 1), TWO), Case(Shape(S, 4, 1), TWO))
AGAIN: Final = tuple(
    Case(Shape(way, n, ps), TWO) for way in SERVED for n, ps in ((4, 1), (4, 2), (8, 1))
)
"""Held-out trainings that are measured twice: equal trainings differ, too."""

TRAIN_S, QUICK_S = 5.0, 2.5
LONG_ENOUGH: Final = 0.4
"""A training that took less than this share of the requested seconds is repeated."""
RECORDS: Final = 40  # records of each worker in a training, each with its global step
LEAST_STEPS: Final = 60
FIT_STEPS: Final = 200
"""Simulated steps of a fit, which draws no random numbers."""

TARGET: Final = Target("at most", 0.15)
FIGURES: Final = ROOT / "benchmarks/scaling.json"

Row = Mapping[str, Any]


def measure(setting: Setting) -> list[Outcome]:
    """Measure the grid; write its figures, the shipped machine with its errors, and the page."""
    seconds = QUICK_S if setting.quick else TRAIN_S
    cases = QUICK if setting.quick else (*GRID, *AGAIN)
    machine, when = describe(ROOT), time.strftime("%Y-%m-%d %H:%M %Z")
    rows: list[dict[str, Any]] = []
    began = time.monotonic()
    for number, case in enumerate(cases):
        load = os.getloadavg()[0]
        found = _measured(setting, case, seconds)
        rows.append(as_json(found) | {"load": round(load, 1)})
        print_progress(
            f"  {number + 1} of {len(cases)}: {name(case)}: {found.speed.steps_per_s:,.1f} steps/s"
            f" for {found.seconds:.1f} s, other work used {found.taken:.2f} cores"
        )
        took_s = round(time.monotonic() - began)
        figures = {"when": when, "machine": machine, "took_s": took_s, "trainings": rows}
        if not setting.quick:
            FIGURES.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n", "utf-8")
    trials = evaluate(figures, SHIPPED.path if not setting.quick else None)
    if not setting.quick:
        scaling_page.write(figures, trials)
    return outcomes(trials)


def _measured(setting: Setting, case: Case, seconds: float) -> Measured:
    """Train for about a given time; again if the expected speed was too low."""
    rate = simulate(case.shape, SHIPPED.machine.costs, case.host, steps=FIT_STEPS).steps_per_s
    while True:
        steps = max(LEAST_STEPS, round(rate * seconds))
        local = steps // case.shape.workers if case.shape.way is A else steps
        found = train(setting.place, case, steps, 1 if case.singly else max(1, local // RECORDS))
        if found.seconds >= LONG_ENOUGH * seconds or found.speed.steps_per_s <= rate:
            return found
        rate = found.speed.steps_per_s


def as_json(found: Measured) -> dict[str, Any]:
    """Return a training as an entry of scaling.json."""
    shape, host = found.case.shape, found.case.host
    return {
        "way": shape.way.value,
        "workers": shape.workers,
        "ps": shape.ps,
        "batch_size": shape.batch_size,
        "shares": list(shape.shares),
        "cores": host.cores,
        "mbit": None if host.bandwidth == float("inf") else host.bandwidth * 8 / 1e6,
        "singly": found.case.singly,
        "steps_per_s": found.speed.steps_per_s,
        "staleness": found.speed.staleness,
        "ratios": list(found.speed.ratios) if found.case.singly else [],
        "seconds": found.seconds,
        "worker_cpu_s": found.worker_cpu_s,
        "ps_cpu_s": found.ps_cpu_s,
        "taken": found.taken,
    }


def from_json(row: Row) -> Measured:
    """Return the training of an entry of scaling.json."""
    way, shares = Way(row["way"]), tuple(row["shares"])
    shape = Shape(way, row["workers"], row["ps"], row["batch_size"], shares=shares)
    host = Host(row["cores"], row["mbit"] * 1e6 / 8 if row["mbit"] else float("inf"))
    speed = Speed(row["steps_per_s"], tuple(row["ratios"]), row["staleness"])
    case = Case(shape, host, row["singly"])
    return Measured(case, speed, row["seconds"], row["worker_cpu_s"], row["ps_cpu_s"], row["taken"])


def name(case: Case) -> str:
    """Return a short name of a training: `async 2 x 1 ps, 1 core, 20 Mbit/s`."""
    shape, host = case.shape, case.host
    text = f"{shape.way} {shape.workers}" + (f" x {shape.ps} ps" if shape.ps else "")
    text += f", batch {shape.batch_size}" if shape.batch_size != 100 else ""  # noqa: PLR2004
    text += ", 1 core" if host.cores == 1 else ""
    text += f", {host.bandwidth * 8 / 1e6:.0f} Mbit/s" if host.bandwidth != float("inf") else ""
    slow = [
        f"worker {number} {share:.0%}" for number, share in enumerate(shape.shares) if share < 1
    ]
    return ", ".join([text, *slow]) + (", each step recorded" if case.singly else "")


def shipped(found: Sequence[Measured], label: str) -> Machine:
    """Return the machine whose costs give the figures of the calibrating trainings."""
    (single,) = [each for each in found if each.case.singly]
    used = {each.case: each for each in found if each.case in CALIBRATING}
    one, tiny = used[CALIBRATING[0]], used[Case(Shape(A, 1, 1, batch_size=1), TWO)]
    image_s = max(0.0, one.worker_cpu_s - tiny.worker_cpu_s) / 99
    served = [each for case, each in used.items() if case.shape.ps and case.shape.batch_size > 1]
    ring = [each for case, each in used.items() if not case.shape.ps]
    start = {"worker_s": 2e-3, "call_s": 1e-3, "serve_s": 2e-3, "after": 0.5, "update": 0.5}
    costs = _fitted(served, start, Costs(image_s=image_s))
    start = {"ring_s": 5e-4, "reduce_s": 2e-3, "hop_s": 1e-3, "hop_wait_s": 1e-3}
    costs = _fitted(ring, start, costs)
    shapes = tuple(case.shape for case in used)
    return Machine(costs, single.speed.ratios, shapes, TWO, label)


def _fitted(found: Sequence[Measured], start: Mapping[str, float], costs: Costs) -> Costs:
    """Return costs with the least squares of the logarithms of simulated / measured figures."""

    def at(logs: Sequence[float]) -> Costs:
        values = dict(zip(start, np.exp(logs).tolist(), strict=True))
        return replace(costs, **values | {"after": min(1.0, values.get("after", costs.after))})

    def off(logs: Sequence[float]) -> list[float]:
        errors = []
        for each in found:
            forecast = simulate(each.case.shape, at(logs), each.case.host, steps=FIT_STEPS)
            errors.append(forecast.steps_per_s / each.speed.steps_per_s)
            errors.append(forecast.worker_cpu_s / each.worker_cpu_s)
            errors += [forecast.ps_cpu_s / each.ps_cpu_s] if each.ps_cpu_s else []
        return np.log(errors).tolist()

    return at(least_squares(off, np.log(list(start.values())), diff_step=0.01).x)


def evaluate(figures: Mapping[str, Any], path: Path | None) -> list[Trial]:
    """Predict each held-out training in all ways, and write the errors of each class.

    Args:
        figures: The content of scaling.json.
        path: The file of the shipped machine and the errors; None: write nothing.
    """
    found = [from_json(row) for row in figures["trainings"]]
    label = f"{figures['machine']['cpu']}, {figures['machine']['cores']} cores"
    machine = shipped(found, label)
    trials = list(_trials(found, machine))
    if path is not None:
        raw = {
            "label": label,
            "when": figures["when"],
            "cores": machine.host.cores,
            "costs": asdict(machine.costs),
            "ratios": [round(each, 4) for each in machine.ratios],
            "shapes": [
                {"way": each.way.value, "workers": each.workers, "ps": each.ps}
                for each in machine.shapes
                if each.batch_size == SINGLE.shape.batch_size
            ],
            "errors": classes(trials),
        }
        path.write_text(json.dumps(raw, indent=1) + "\n", "utf-8")
    return trials


def _trials(found: Sequence[Measured], machine: Machine) -> Iterator[Trial]:
    """Yield the prediction of each held-out training from the shipped machine and from others."""
    held_out = [each for each in found if each.case in HELD_OUT and each.case not in CALIBRATING]
    plain = [
        each
        for each in found
        if each.case.host.bandwidth == float("inf")
        and not each.case.shape.shares
        and each.case.shape.batch_size == SINGLE.shape.batch_size
        and not each.case.singly
    ]
    for source in (None, *plain):
        own = machine
        if source is not None:
            own = calibrated(source.case.shape, source.case.host, source.speed, machine)
        for each in held_out:
            shape, host = each.case.shape, each.case.host
            same_way = source is None or source.case.shape.way is shape.way
            if each is source or not same_way:
                continue
            yield Trial.of(own, shape, host, each.speed, source is None)


def near(trials: Sequence[Trial], way: Way) -> list[float]:
    """Return the errors within three times without a change, calibrated on a run."""
    return [
        abs(each.off)
        for each in trials
        if each.kind
        and each.kind == replace(each.kind, way=way, shipped=False, change="")
        and each.kind.times <= 3  # noqa: PLR2004
    ]


def outcomes(trials: Sequence[Trial]) -> list[Outcome]:
    """Return the errors within three times, calibrated on a run, for each way."""
    return [
        Outcome(
            key=f"simulation-{way.value}",
            what=f"{way.value}: measured against predicted global steps/s, relative error",
            unit="ratio",
            target=TARGET,
            found=pairs.range_of(near(trials, way)),
            how="Within three times the tasks of the run that calibrates; see docs/scaling.md.",
            repeated=False,
        )
        for way in Way
        if near(trials, way)
    ]


def write_page() -> None:
    """Write the page, the shipped machine and its errors from the kept figures."""
    figures = json.loads(FIGURES.read_text("utf-8"))
    scaling_page.write(figures, evaluate(figures, SHIPPED.path))
