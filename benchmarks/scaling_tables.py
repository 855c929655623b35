"""The tables of docs/scaling.md, from the rows of benchmarks/scaling.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.calibration import ASYNC, FITTED, SUBTRACTED
from lab.simulation import Shape

# ruff: noqa: E501

Row = Mapping[str, Any]

MET: Final = 0.05
"""A figure with a larger relative error than this is not met."""


def error(row: Row, figure: str) -> float:
    """Return the relative error of a simulated figure."""
    return float(row["simulated"][figure] / row["measured"][figure] - 1)


def name(row: Row) -> str:
    """Return a short name of a shape: `async 2 x 1 ps`."""
    servers = f" x {row['ps']} ps" if row["ps"] else ""
    batch = "" if row["batch_size"] == ASYNC.batch_size else f", batch {row['batch_size']}"
    return f"{row['way']} {row['workers']}{servers}{batch}"


def _head(row: Row, figure: str) -> str:
    return name(row) + (" *" if figure in row["calibrates"] else "")


def steps_and_images(shapes: Sequence[Row]) -> str:
    """Return the table of steps and images per second, measured and simulated."""
    alike = [row for row in shapes if row["batch_size"] == ASYNC.batch_size]
    alone = {
        (row["way"], row["ps"]): row["measured"]["images_per_s"]
        for row in alike
        if row["workers"] == 1
    }
    rows = []
    for row in shapes:
        measured, simulated = row["measured"], row["simulated"]
        one = alone.get((row["way"], row["ps"])) if row in alike else None
        rates = [each["steps_per_s"] for each in row["repeats"]]
        stale = [
            "" if each["staleness"] is None else f"{each['staleness']:.2f}"
            for each in (measured, simulated)
        ]
        rows.append(
            [
                _head(row, "steps_per_s"),
                number(measured["steps_per_s"]),
                f"{number(min(rates))} to {number(max(rates))}" if len(rates) > 1 else "",
                "" if measured["taken"] is None else f"{measured['taken']:.2f}",
                number(simulated["steps_per_s"]),
                f"{error(row, 'steps_per_s'):+.0%}",
                number(measured["images_per_s"]),
                "" if one is None else f"{measured['images_per_s'] / one / row['workers']:.0%}",
                *stale,
            ]
        )
    head = ["workers x ps", "steps/s", "from, to", "taken", "simulated", "error", "images/s"]
    times = max(len(row["repeats"]) for row in shapes)
    note = (
        f"\\* calibrates the simulation. Steps/s: the median of up to {times} trainings, then the lowest and the highest. Taken: cores"
        " that other work used at the same time. Efficiency: images/s divided by the number of workers times one worker's images/s.\n"
    )
    return table([*head, "efficiency", "staleness", "simulated"], rows) + "\n" + note


def cpu_time(shapes: Sequence[Row]) -> str:
    """Return the table of the CPU time of a step, measured and simulated."""
    rows = []
    for row in shapes:
        measured = row["measured"]
        rows.append(
            [
                _head(row, "cpu_s"),
                *(f"{1e3 * measured[key]:.2f} ms" for key in ("worker_cpu_s", "ps_cpu_s", "cpu_s")),
                f"{1e3 * row['simulated']['cpu_s']:.2f} ms",
                f"{error(row, 'cpu_s'):+.0%}",
                f"{measured['cpu_s'] * measured['steps_per_s']:.2f}",
            ]
        )
    head = ["workers x ps", "workers", "servers", "together", "simulated", "error"]
    return table([*head, "cores in use"], rows)


def bytes_of_a_step(shapes: Sequence[Row]) -> str:
    """Return the table of the bytes of a step, measured and simulated, and the minimum."""
    rows = []
    for row in shapes:
        wire, least = row["measured"]["wire_bytes"], row["least_bytes"]
        if not wire or not least:
            continue
        simulated = row["simulated"]["wire_bytes"]
        rows.append(
            [
                _head(row, "wire_bytes"),
                f"{least:,.0f}",
                f"{wire:,.0f}",
                f"{wire / least:.2f}",
                f"{simulated:,.0f}",
                f"{simulated / wire - 1:+.0%}",
            ]
        )
    if not rows:
        return "Not measured: the programs shared the host's network.\n"
    head = ["workers x ps", "least", "on the wire", "/ least", "simulated", "error"]
    return table(head, rows)


def calibration(costs: Mapping[str, float], off: Mapping[str, float]) -> str:
    """Each cost, the figure that it is derived from, and whether the simulation meets that figure."""
    rows = [
        [
            f"`{fit.cost}`",
            _cost(fit.cost, costs[fit.cost]),
            f"{fit.label} of {_shape(fit.shape)}",
            f"{off[fit.cost]:+.0%}" if fit.cost in off else "",
        ]
        for fit in (*FITTED, *SUBTRACTED)
    ]
    rows += [
        [f"`{cost}`", _cost(cost, costs[cost]), f"{source}, measured alone", ""]
        for cost, source in (
            ("image_s", "TensorFlow with the batch in a variable"),
            ("byte_s", "a socket over the loopback"),
            ("apply_byte_s", "NumPy"),
        )
    ]
    missed = [cost for cost, share in off.items() if abs(share) > MET]
    lines = [
        "Each cost is derived from one figure; `lab/simulation/model.py` explains the costs. *Off* is the difference between this figure and"
        " the simulation with all these costs.\n",
        table(["cost", "value", "derived from", "off"], rows),
    ]
    for cost in missed:
        why = (
            "no value gives it together with the other figures"
            if costs[cost]
            else "the cost would need to be negative, and is 0"
        )
        lines.append(f"**The figure for `{cost}` is not met** ({off[cost]:+.0%}): {why}.\n")
    return "\n".join(lines)


def _shape(shape: Shape) -> str:
    row = {"way": shape.way.value, "workers": shape.workers, "ps": shape.ps}
    return name({**row, "batch_size": shape.batch_size})


def _cost(name: str, value: float) -> str:
    if name == "call_bytes":
        return f"{value:,.0f} bytes"
    if name == "crowding" or not value:
        return f"{value:.2f}"
    return f"{value * 1e9:.3f} ns" if value < 1e-7 else f"{value * 1e6:,.1f} µs"  # noqa: PLR2004


def other_hosts(scenes: Sequence[Mapping[str, Any]]) -> str:
    """The predictions, each with its assumptions."""
    lines = [
        "## Predictions for other hosts\n",
        "**These predictions are not checked.** The costs of calls were measured on CPUs, with messages of softmax's size. The speed of"
        " the GPUs comes from NVIDIA.\n",
    ]
    for scene in scenes:
        rows = [
            [
                name({**row, "batch_size": ASYNC.batch_size}),
                number(row["steps_per_s"]),
                number(row["images_per_s"]),
                f"{row['efficiency']:.0%}",
                f"{row['cores_busy']:.0%}",
                f"{row['link_busy']:.0%}",
                f"{row['wire_bytes'] / 1e6:,.2f} MB",
                "" if row["staleness"] is None else f"{row['staleness']:.1f}",
            ]
            for row in scene["rows"]
        ]
        head = ["workers x ps", "steps/s", "images/s", "efficiency", "busiest cores"]
        lines += [
            f"### {scene['title']}\n",
            f"{scene['assumes']}\n",
            table([*head, "busiest link", "on the wire", "staleness"], rows),
        ]
    return "\n".join(lines)


def number(value: float) -> str:
    """Format a number: with two decimals below 10, without decimals above."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns except the first are right-aligned."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
