"""The predictions in docs/outgrow.md, with the errors that were measured with up to 8 workers."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from benchmarks import second_machine
from benchmarks.calibration import ASYNC
from benchmarks.scaling_tables import error, number, table
from benchmarks.trainings import ROOT
from lab import units
from lab.cli import main
from lab.service.simulate import Row, SimulateOptions, simulate_all
from lab.simulation import MEASURED, Box, Shape, Way, simulate

# ruff: noqa: E501

WORKERS: Final = (8, 64, 512)
CORES: Final = 16
NETWORK: Final = "10gbit"
SLOW_NETWORK: Final = "1gbit"
WAYS: Final = (Way.ASYNC, Way.SYNC)
STEP_S: Final = 0.05
_OPTIONS: Final = f"--workers {','.join(map(str, WORKERS))} --network {NETWORK} --cores {CORES}"
COMMANDS: Final = {
    "async: each task on a node of its own": f"lab simulate async {_OPTIONS}",
    "the same with sync": f"lab simulate sync {_OPTIONS}",
    "workers with a GPU that takes 50 ms for a batch": f"lab simulate async {_OPTIONS} --step {STEP_S * 1e3:.0f}ms",
}


def printed() -> str:
    """Return the commands of the predictions, and what they print."""
    lines = [f"# {what}\n{command}" for what, command in COMMANDS.items()]
    outputs = [f"$ {command}\n{_output(command)}" for command in COMMANDS.values()]
    return "\n".join(["```", *lines, "```\n", "```", "\n".join(outputs) + "```"])


def _output(command: str) -> str:
    """Return what a command of lab prints to stdout."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(io.StringIO()):
        if main(shlex.split(command)[1:]) != 0:
            raise ValueError(f"{command} failed")
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def predictions() -> str:
    """Return the table of the predictions with their ranges, and the sentences about them."""
    figures = json.loads((ROOT / "benchmarks/scaling.json").read_text(encoding="utf-8"))
    errors = {way: _errors(figures["shapes"], way) for way in WAYS}
    found = {way: _rows(way) for way in WAYS}
    rows = [_cells(row, errors[way]) for way in WAYS for row in found[way]]
    head = ["workers", "steps/s", "by the errors", "wait"]
    head += [f"most at {_gbit(name)}" for name in (SLOW_NETWORK, NETWORK)]
    return "\n".join([table(head, rows), *_sentences(figures, errors, found)])


def _rows(way: Way) -> Sequence[Row]:
    rate = units.bytes_per_s(NETWORK)
    return simulate_all(
        SimulateOptions(way.value, WORKERS, None, None, rate, None, CORES, None, ASYNC.batch_size)
    ).rows


def _cells(row: Row, errors: Sequence[float]) -> list[str]:
    forecast = row.forecast
    # An error is simulated / measured - 1.
    low, high = (forecast.steps_per_s / (1 + each) for each in (max(errors), min(errors)))
    return [
        f"{forecast.shape.way.value} {forecast.shape.workers}",
        number(forecast.steps_per_s),
        f"{number(low)} to {number(high)}",
        f"{forecast.waiting:.0%}",
        *(number(_most(row, network)) for network in (SLOW_NETWORK, NETWORK)),
    ]


def _most(row: Row, network: str) -> float:
    """Return the steps per second at which the server's link, or all workers, are busy."""
    return min(
        units.bytes_per_s(network) / _link_bytes(row), row.forecast.steps_per_s / row.efficiency
    )


def _link_bytes(row: Row) -> float:
    """Return the bytes of a step in the fuller direction of the busiest link."""
    return units.bytes_per_s(NETWORK) * row.forecast.link_busy / row.forecast.steps_per_s


def _errors(shapes: Sequence[Mapping[str, Any]], way: Way, least: int = 1) -> list[float]:
    """Return the errors of trainings whose speed did not calibrate the simulation.

    Args:
        shapes: The rows of `scaling.json`.
        way: How their workers share parameters.
        least: The least number of their workers.
    """
    return [
        error(row, "steps_per_s")
        for row in shapes
        if row["way"] == way.value
        and row["workers"] >= least
        and "steps_per_s" not in row["calibrates"]
    ]


def _wait_errors(shapes: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the errors of the share of time in which a worker waits, for all ways in `WAYS`."""
    return [
        (
            found["worker_cpu_s"] * found["steps_per_s"]
            - other["worker_cpu_s"] * other["steps_per_s"]
        )
        / row["workers"]
        for row in shapes
        for found, other in [(row["measured"], row["simulated"])]
        if row["way"] in WAYS and not row["calibrates"]
    ]


def _sentences(
    figures: Mapping[str, Any],
    errors: Mapping[Way, Sequence[float]],
    found: Mapping[Way, Sequence[Row]],
) -> Iterator[str]:
    shapes, cores = figures["shapes"], figures["machine"]["cores"]
    most = max(row["workers"] for row in shapes)
    ranges = [
        f"{min(each):+.0%} to {max(each):+.0%} for {way.value}" for way, each in errors.items()
    ]
    largest = [each for way in WAYS for each in _errors(shapes, way, most)]
    faster = ": the real trainings were faster" if max(largest) < 0 else ""
    waits = _wait_errors(shapes)
    yield (
        f"- **Measured: up to {most} workers.** {sum(map(len, errors.values()))} trainings ran on one machine with {cores} cores, which all tasks shared. The simulated speed differed from"
        f" the measured one by {' and by '.join(ranges)} ([all trainings](scaling.md#steps-and-images)). *By the errors* is the speed of a real training if its error is in this range."
        f" The share of time in which a worker waits differed by {min(waits) * 100:+.0f} to {max(waits) * 100:+.0f} percentage points.\n"
        f"- **Above {most} workers, and on more than one machine, this is an extrapolation.** In the measured trainings the {cores} cores were the limit."
        f" Here it is the server or its link. No measurement shows the error there. With {most} workers all errors were {min(largest):+.0%} to {max(largest):+.0%}{faster}."
    )
    first = found[Way.ASYNC][0]
    alone = first.forecast.steps_per_s / first.forecast.shape.workers / first.efficiency
    yield (
        f"- **Other machines.** {second_machine.sentence(second_machine.read())} So train with one worker on your cluster first: the simulation expects {alone:.0f} steps/s."
        " The factor between both also applies to the table, but not to the limits of the links."
    )
    (one,) = [row for row in figures["shapes"] if _shape(row) == ASYNC]
    spread = sorted(each["ps_cpu_s"] for each in one["repeats"])
    middle = one["measured"]["ps_cpu_s"]
    rates = [
        number(
            simulate(
                Shape(Way.ASYNC, WORKERS[1], 1),
                replace(MEASURED, call_s=MEASURED.call_s * each / middle),
                Box(CORES, 0, units.bytes_per_s(NETWORK), 20e-6),
            ).steps_per_s
        )
        for each in (spread[-1], spread[0])
    ]
    yield (
        f"- **How certain the costs are.** In {len(spread)} equal trainings with one worker, the server needed {spread[0] * 1e3:.2f} to {spread[-1] * 1e3:.2f} ms of a core for a step."
        f" With these costs the prediction for {WORKERS[1]} workers is {rates[0]} to {rates[1]} steps/s."
    )
    async_, sync = found[Way.ASYNC][0].forecast, found[Way.SYNC][-1].forecast
    server = 1 / async_.ps_cpu_s
    yield (
        f"- **Where the server is saturated.** In the simulation a server does one thing after another, on one core. So async ends at 1 / {async_.ps_cpu_s * 1e3:.2f} ms ="
        f" {server:,.0f} steps/s, with any number of workers. If a worker takes {STEP_S * 1e3:.0f} ms for a batch, {server * STEP_S:.0f} workers saturate a server."
        f" A step of sync needs {sync.ps_cpu_s / sync.shape.workers * 1e3:.2f} ms for each worker: {sync.ps_cpu_s:.1f} s with {sync.shape.workers} workers.\n"
        "  This holds for a server with `cpus: 1`, as in `clusters/slurm.yaml`, if Slurm limits tasks to their CPUs. With more CPUs a real server may be faster: it handles several calls at once."
    )
    size, rate = _link_bytes(found[Way.ASYNC][0]), units.bytes_per_s(SLOW_NETWORK)
    yield (
        f"- **Where the link is saturated.** A step of a worker moves {async_.wire_bytes / 1e3:.1f} kB. The fuller direction of the server's link carries {size / 1e3:.1f} kB of it."
        f" {_gbit(SLOW_NETWORK)} is {rate / 1e6:.0f} MB/s, and is saturated at {rate / size:,.0f} steps/s of async. A step of sync moves as much for each worker.\n"
        "  *Most* is the smaller of two limits: this link, and workers that never wait for each other."
    )


def _shape(row: Mapping[str, Any]) -> Shape:
    return Shape(Way(row["way"]), row["workers"], row["ps"], row["batch_size"])


def _gbit(network: str) -> str:
    return network.replace("gbit", " Gbit/s")
