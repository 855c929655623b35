"""How a training scales with workers and parameter servers, beside what the simulation says."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks import elsewhere, pairs, scaling_page
from benchmarks.calibration import ASYNC, SHAPES, calibrate
from benchmarks.machine import describe
from benchmarks.measure import Setting, say
from benchmarks.microcosts import apply_byte_s, byte_s
from benchmarks.outcome import Outcome, Target
from benchmarks.shapes import Measured, middle, train
from benchmarks.trainings import ROOT, Workplace
from lab.simulation import Box, Costs, Forecast, Shape, Way, least_bytes, simulate

WORKERS: Final = (1, 2, 4, 8)
SERVERS: Final = (1, 2, 4)
GRID: Final = (
    *(Shape(way, n, ps) for way in (Way.ASYNC, Way.SYNC) for ps in SERVERS for n in WORKERS),
    *(Shape(Way.RING, n, 0) for n in WORKERS),
)
QUICK_GRID: Final = (Shape(Way.ASYNC, 2, 1), Shape(Way.SYNC, 2, 1))

TRAIN_S, QUICK_S = 7.0, 2.5
RECORDS: Final = 40  # of each worker in a training: so many looks at its global step
LEAST_STEPS: Final = 60
REPEATS: Final = 3  # of a training that calibrates: all predictions hang on it

ERROR: Final = Target("at most", 0.25)
WIRE_ERROR: Final = Target("at most", 0.1)
WIRE: Final = Target("at most", 1.25)

PAGE: Final = ROOT / "docs/scaling.md"
FIGURES: Final = ROOT / "benchmarks/scaling.json"
COSTS: Final = ROOT / "lab/simulation/costs.json"

HOW: Final = (
    "Experiments async, sync and multiworker, softmax, batches of 100, workers {workers} and"
    " parameter servers {servers}, all tasks on one node of the local backend; while all workers"
    " train, about {seconds:.0f} s. {calibrating} small shapes calibrate the simulation; the"
    " figure is over the {checked} shapes that did not. See docs/scaling.md."
)


def measure(setting: Setting) -> list[Outcome]:
    """The whole grid; writes docs/scaling.md, benchmarks/scaling.json and the costs."""
    seconds = QUICK_S if setting.quick else TRAIN_S
    grid = QUICK_GRID if setting.quick else GRID
    machine, when = describe(ROOT), time.strftime("%Y-%m-%d %H:%M %Z")
    cores = machine["cores"] or os.cpu_count() or 1
    say(f"scaling on local: {len(SHAPES)} trainings calibrate, {len(grid)} shapes")
    micro = Costs(byte_s=byte_s(), apply_byte_s=apply_byte_s())
    guess = Costs(**json.loads(COSTS.read_text(encoding="utf-8")))
    times = 1 if setting.quick else REPEATS
    found = {
        shape: middle([one(setting.place, shape, guess, cores, seconds) for _ in range(times)])
        for shape in SHAPES
    }
    say("  calibrating")
    costs = calibrate(found, micro, cores)
    for shape in grid:
        if shape not in found:
            found[shape] = one(setting.place, shape, costs, cores, seconds)
    forecasts = {shape: simulate(shape, costs, Box(cores)) for shape in {**found}}
    figures = {
        "when": when,
        "machine": machine,
        "costs": costs.to_json(),
        "shapes": [as_json(found[shape], forecasts[shape]) for shape in found],
    }
    if not setting.quick:
        write(figures, costs)
    return outcomes(found, forecasts, seconds)


def one(place: Workplace, shape: Shape, costs: Costs, cores: int, seconds: float) -> Measured:
    """Train a shape for so many seconds, as far as the simulation can tell beforehand."""
    rate = simulate(shape, costs, Box(cores)).steps_per_s
    steps = max(LEAST_STEPS, round(rate * seconds))
    local = steps // shape.workers if shape.way is Way.ASYNC else steps
    began = time.monotonic()
    found = train(place, shape, steps, record_every=max(1, local // RECORDS))
    say(
        f"  {name(shape)}: {found.steps_per_s:,.0f} steps/s, simulated {rate:,.0f}"
        f" ({time.monotonic() - began:.1f} s)"
    )
    return found


def name(shape: Shape) -> str:
    """In words: `async, 4 workers, 2 ps`."""
    servers = f", {shape.ps} ps" if shape.ps else ""
    batch = "" if shape.batch_size == ASYNC.batch_size else f", batches of {shape.batch_size}"
    return f"{shape.way.value}, {shape.workers} worker{'s'[: shape.workers > 1]}{servers}{batch}"


def as_json(found: Measured, forecast: Forecast) -> dict[str, Any]:
    """One shape: what it was, what was measured and what is simulated."""
    shape = found.shape
    return {
        "way": shape.way.value,
        "workers": shape.workers,
        "ps": shape.ps,
        "batch_size": shape.batch_size,
        "calibrates": shape in SHAPES,
        "least_bytes": least_bytes(shape),
        "measured": {**found.to_json(), "images_per_s": found.steps_per_s * shape.images_per_step},
        "simulated": {
            "steps_per_s": forecast.steps_per_s,
            "images_per_s": forecast.images_per_s,
            "worker_cpu_s": forecast.worker_cpu_s,
            "ps_cpu_s": forecast.ps_cpu_s,
            "wire_bytes": forecast.wire_bytes,
            "staleness": forecast.staleness,
        },
    }


def write(
    figures: Mapping[str, Any], costs: Costs, *, page: Path = PAGE, figures_file: Path = FIGURES
) -> None:
    """Write the figures, the page that is made of them, and the costs for `lab simulate`."""
    say("  simulating boxes that are not at hand")
    kept = {**figures, "elsewhere": elsewhere.predictions(costs)}
    figures_file.write_text(json.dumps(kept, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    page.write_text(scaling_page.markdown(kept), encoding="utf-8")
    COSTS.write_text(json.dumps(costs.to_json(), indent=1) + "\n", encoding="utf-8")


def outcomes(
    found: Mapping[Shape, Measured], forecasts: Mapping[Shape, Forecast], seconds: float
) -> list[Outcome]:
    """How far off the simulation is where it was not calibrated, and what is on the wire."""
    checked = [shape for shape in found if shape not in SHAPES]
    on_wire = {
        shape: bytes_
        for shape in found
        if least_bytes(shape) and (bytes_ := found[shape].wire_bytes) is not None
    }
    how = HOW.format(
        workers=", ".join(map(str, WORKERS)),
        servers=", ".join(map(str, SERVERS)),
        seconds=seconds,
        calibrating=len(SHAPES),
        checked=len(checked),
    )
    rates = {
        shape: abs(forecasts[shape].steps_per_s / found[shape].steps_per_s - 1) for shape in checked
    }
    wires = {
        shape: abs(forecasts[shape].wire_bytes / bytes_ - 1)
        for shape, bytes_ in on_wire.items()
        if shape not in SHAPES
    }
    least = {shape: bytes_ / least_bytes(shape) for shape, bytes_ in on_wire.items()}
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
            "Counted by the kernel on the loopback of the run's own network, with the headers of"
            " TCP and IP, against what a step has to move at least; each shape once.",
        ),
    ]


def _outcome(
    key: str, what: str, target: Target, values: Mapping[Shape, float], how: str
) -> Outcome:
    if not values:
        why_not = "the programs had no network of their own, or nothing was left to check"
        return Outcome(key, what, "ratio", target, None, how, why_not)
    worst = max(values, key=lambda shape: values[shape])
    return Outcome(
        key=key,
        what=what,
        unit="ratio",
        target=target,
        found=pairs.estimate(list(values.values())),
        how=how,
        details={"largest": f"{values[worst]:.3f} ({name(worst)})"},
        raw={"shapes": [name(shape) for shape in values]},
    )
