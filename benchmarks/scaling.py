"""The scaling of a training with workers and parameter servers, measured and simulated."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import other_hosts, pairs, scaling_page, slow_link
from benchmarks.calibration import ASYNC, FITTED, SHAPES, calibrate, calibrates
from benchmarks.machine import describe
from benchmarks.measure import Setting, print_progress
from benchmarks.microcosts import apply_byte_s, byte_s, image_s
from benchmarks.outcome import Outcome, Target
from benchmarks.shapes import Measured, middle, train
from benchmarks.trainings import ROOT
from lab.simulation import MEASURED, Box, Costs, Forecast, Shape, Way, least_bytes, simulate

WORKERS: Final = (1, 2, 4, 8)
SERVERS: Final = (1, 2, 4)
GRID: Final = (
    *(Shape(way, n, ps) for way in (Way.ASYNC, Way.SYNC) for ps in SERVERS for n in WORKERS),
    *(Shape(Way.RING, n, 0) for n in WORKERS),
)
QUICK_GRID: Final = (Shape(Way.ASYNC, 2, 1), Shape(Way.SYNC, 2, 1))

TRAIN_S, QUICK_S = 6.0, 2.5
LONG_ENOUGH: Final = 0.5
"""A first training that took less than this share of the requested seconds does not count."""
RECORDS: Final = 40  # records of each worker in a training, each with its global step
LEAST_STEPS: Final = 60
REPEATS: Final = 3

ERROR: Final = Target("at most", 0.25)
WIRE_ERROR: Final = Target("at most", 0.1)
WIRE: Final = Target("at most", 1.25)

PAGE: Final = ROOT / "docs/scaling.md"
FIGURES: Final = ROOT / "benchmarks/scaling.json"
COSTS: Final = ROOT / "lab/simulation/costs.json"

HOW: Final = (
    "Experiments async, sync and multiworker, softmax, batches of 100, workers {workers} and"
    " parameter servers {servers}, all tasks on one node of the local backend. Each shape has"
    " {repeats} trainings, about {seconds:.0f} s each while all workers train; the medians count."
    " The simulation receives the share of the cores that other work used. Figures that calibrate"
    " it are no test; {checked} shapes remain. See docs/scaling.md."
)

COMPARED: Final = ("steps_per_s", "cpu_s", "wire_bytes")
"""The attributes of `Measured` and `Forecast` that are compared."""

Repeats = Mapping[Shape, Sequence[Measured]]
"""The measurements of each shape."""
Train = Callable[[Shape, int, int], Measured]


def measure(setting: Setting) -> list[Outcome]:
    """Measure the grid; write docs/scaling.md, benchmarks/scaling.json and the costs."""
    seconds, times = (QUICK_S, 1) if setting.quick else (TRAIN_S, REPEATS)
    shapes = tuple(dict.fromkeys((*SHAPES, *(QUICK_GRID if setting.quick else GRID))))
    machine, when = describe(ROOT), time.strftime("%Y-%m-%d %H:%M %Z")
    cores = machine["cores"] or os.cpu_count() or 1
    print_progress(
        f"scaling on local: {len(shapes)} shapes, of which {len(SHAPES)} calibrate, {times} times"
    )
    micro = Costs(image_s=image_s(setting.place), byte_s=byte_s(), apply_byte_s=apply_byte_s())
    by = partial(train, setting.place)
    found = {
        shape: several(shape, simulate(shape, MEASURED, Box(cores)).steps_per_s, seconds, times, by)
        for shape in shapes
    }
    print_progress("  calibrating")
    costs = calibrate({shape: middle(found[shape]) for shape in SHAPES}, micro, cores)
    forecasts = simulated(found, costs, cores)
    if not setting.quick:
        write(as_json(found, forecasts, costs) | {"when": when, "machine": machine}, costs)
    return outcomes(found, forecasts, seconds)


def several(shape: Shape, rate: float, seconds: float, times: int, train: Train) -> list[Measured]:
    """Train a shape several times, for a given time each.

    Args:
        shape: The shape.
        rate: The expected steps per second. The first training gives a better value, and does not
            count if it was far too short.
        seconds: The time in which all workers train.
        times: The number of trainings.
        train: The function that trains; gets the shape, the steps and the steps between records.
    """
    found: list[Measured] = []
    tries = 0
    while len(found) < times:
        steps = max(LEAST_STEPS, round(rate * seconds))
        local = steps // shape.workers if shape.way is Way.ASYNC else steps
        each = train(shape, steps, max(1, local // RECORDS))
        tries += 1
        print_progress(
            f"  {name(shape)}: {each.steps_per_s:,.0f} steps/s for {each.seconds:.1f} s,"
            f" other work used {each.taken or 0:.2f} cores"
        )
        rate = each.steps_per_s
        if tries > 1 or each.seconds >= LONG_ENOUGH * seconds:
            found.append(each)
    return found


def simulated(found: Repeats, costs: Costs, cores: int) -> dict[Shape, Forecast]:
    """Simulate each shape, with the other work that was measured."""
    return {shape: simulate(shape, costs, middle(each).box(cores)) for shape, each in found.items()}


def name(shape: Shape) -> str:
    """Return the name of a shape: `async, 4 workers, 2 ps`."""
    servers = f", {shape.ps} ps" if shape.ps else ""
    batch = "" if shape.batch_size == ASYNC.batch_size else f", batches of {shape.batch_size}"
    return f"{shape.way.value}, {shape.workers} worker{'s'[: shape.workers > 1]}{servers}{batch}"


def as_json(found: Repeats, forecasts: Mapping[Shape, Forecast], costs: Costs) -> dict[str, Any]:
    """Return all shapes, measured and simulated, and the errors of the calibrating figures."""
    rows = [_row(each, forecasts[shape]) for shape, each in found.items()]
    met = {fit.cost: fit.off(middle(found[fit.shape]), forecasts[fit.shape]) for fit in FITTED}
    return {"costs": costs.to_json(), "off": met, "shapes": rows}


def _row(several: Sequence[Measured], forecast: Forecast) -> dict[str, Any]:
    shape = forecast.shape
    return {
        "way": shape.way.value,
        "workers": shape.workers,
        "ps": shape.ps,
        "batch_size": shape.batch_size,
        "calibrates": [figure for figure in COMPARED if calibrates(shape, figure)],
        "least_bytes": least_bytes(shape),
        "measured": middle(several).to_json(),
        "repeats": [each.to_json() for each in several],
        "simulated": {
            "steps_per_s": forecast.steps_per_s,
            "images_per_s": forecast.images_per_s,
            "worker_cpu_s": forecast.worker_cpu_s,
            "ps_cpu_s": forecast.ps_cpu_s,
            "cpu_s": forecast.cpu_s,
            "wire_bytes": forecast.wire_bytes,
            "staleness": forecast.staleness,
        },
    }


def write(
    figures: Mapping[str, Any],
    costs: Costs,
    *,
    page: Path = PAGE,
    figures_file: Path = FIGURES,
    costs_file: Path = COSTS,
) -> None:
    """Write the figures, their page, and the costs for `lab simulate`."""
    print_progress("  simulating other hosts")
    scenes = other_hosts.scenes(figures["machine"]["cores"])
    kept = {**figures, "elsewhere": other_hosts.predictions(costs, scenes)}
    figures_file.write_text(json.dumps(kept, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    costs_file.write_text(json.dumps(costs.to_json(), indent=1) + "\n", encoding="utf-8")
    write_page(page, figures_file)


def write_page(page: Path = PAGE, figures_file: Path = FIGURES) -> None:
    """Write the page from the kept figures."""
    figures = json.loads(figures_file.read_text(encoding="utf-8"))
    page.write_text(scaling_page.markdown(figures, slow_link.read()), encoding="utf-8")


def outcomes(found: Repeats, forecasts: Mapping[Shape, Forecast], seconds: float) -> list[Outcome]:
    """Return the errors of the figures that do not calibrate, and the bytes on the wire."""
    medians = {shape: middle(each) for shape, each in found.items()}

    def errors(figure: str) -> dict[Shape, float]:
        return {
            shape: abs(getattr(forecasts[shape], figure) / value - 1)
            for shape, each in medians.items()
            if not calibrates(shape, figure) and (value := getattr(each, figure))
        }

    rates, wires = errors("steps_per_s"), errors("wire_bytes")
    how = HOW.format(
        workers=", ".join(map(str, WORKERS)),
        servers=", ".join(map(str, SERVERS)),
        repeats=max(map(len, found.values())),
        seconds=seconds,
        checked=len(rates),
    )
    least = {
        shape: each.wire_bytes / least_bytes(shape)
        for shape, each in medians.items()
        if each.wire_bytes and least_bytes(shape)
    }
    return [
        _outcome(
            "simulation-rate",
            "simulated against measured global steps/s, relative error",
            ERROR,
            rates,
            how,
        ),
        _outcome(
            "simulation-wire",
            "simulated against measured bytes on the wire per step, relative error",
            WIRE_ERROR,
            wires,
            how,
        ),
        _outcome(
            "wire-bytes",
            "bytes on the wire per step / parameters down and gradients up",
            WIRE,
            least,
            "The kernel's count on the loopback of the run's own network, with the headers of TCP"
            " and IP, relative to the minimum for a step; one value a shape.",
        ),
    ]


def _outcome(
    key: str, what: str, target: Target, values: Mapping[Shape, float], how: str
) -> Outcome:
    if not values:
        why_not = "the programs shared the host's network, or all figures calibrate"
        return Outcome(key, what, "ratio", target, None, how, why_not)
    worst = max(values, key=lambda shape: values[shape])
    return Outcome(
        key=key,
        what=what,
        unit="ratio",
        target=target,
        found=pairs.range_of(list(values.values())),
        how=how,
        details={"largest": f"{values[worst]:.3f} ({name(worst)})"},
        raw={"shapes": [name(shape) for shape in values]},
        repeated=False,
    )
