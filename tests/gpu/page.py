"""The page `docs/evidence/gpu-box.md`: written from `gpu-box.json`, which holds what was run."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final

from matplotlib.figure import Figure

from lab.gpu import Inventory
from lab.plots.style import line_style, new_figure, settings, svg
from lab.units import MIB
from tests.gpu.steps import STAGES, STEPS, Shown, Step
from tests.gpu.trainings import NOT_RUN

NAME: Final = "gpu-box"
NOT_YET: Final = "Not yet run."
_HEAD: Final = """\
# Trainings on real GPUs

`make test-gpu` writes this page from [`gpu-box.json`](gpu-box.json). The steps are in
`tests/gpu/steps.py`. A step that this host cannot run is "not run", with the reason.
"""
_PANEL: Final = 1.9  # inches

Stages = dict[str, dict[str, Any]]
"""Stage → `facts` of its host, and `steps`: name → `rows`, `training`, `samples`."""


def record(shown: Mapping[Step, Shown], inventory: Inventory, before: Stages) -> Stages:
    """The stages with what was run now.

    A stage in which nothing ran stays. Earlier steps of a stage stay, if they ran on this host.

    Args:
        shown: What each step has shown.
        inventory: The host's GPUs.
        before: The stages so far.
    """
    after = dict(before)
    for stage in STAGES:
        own = {step.name: each for step, each in shown.items() if step.stage == stage}
        if not any(row.result != NOT_RUN for each in own.values() for row in each.rows):
            continue
        now = facts(inventory, {each.tensorflow for each in own.values()})
        earlier = before.get(str(stage), {"facts": {}, "steps": {}})
        same = all(now[name] == earlier["facts"].get(name) for name in ("GPUs", "driver"))
        steps = (earlier["steps"] if same else {}) | {
            name: {
                "rows": [[row.check, row.result, row.detail] for row in each.rows],
                "training": _training(each),
                "samples": each.samples,
            }
            for name, each in own.items()
        }
        if same and not now["TensorFlow"]:
            now["TensorFlow"] = earlier["facts"]["TensorFlow"]
        names = [step.name for step in STEPS if step.stage == stage]
        in_order = {name: steps[name] for name in sorted(steps, key=names.index)}
        after[str(stage)] = {"facts": now, "steps": in_order}
    return after


def facts(inventory: Inventory, versions: AbstractSet[str]) -> dict[str, str]:
    """The date, the GPUs, the driver, the newest CUDA that it supports, and TensorFlow."""
    gpus: dict[str, int] = {}
    for gpu in inventory.gpus:
        name = f"{gpu.name}, {gpu.memory_bytes // MIB:,} MiB"
        gpus[name] = gpus.get(name, 0) + 1
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "GPUs": "; ".join(f"{number} of {name}" for name, number in gpus.items()),
        "driver": inventory.driver,
        "CUDA of the driver": inventory.cuda,
        "TensorFlow": ", ".join(sorted(versions - {""})),
    }


def _training(shown: Shown) -> dict[str, Any] | None:
    if not shown.summary:
        return None
    tasks = shown.summary["tasks"]
    busy = [each["gpu_utilisation"] for each in tasks if each["gpu_utilisation"] is not None]
    return {
        "global_step": shown.summary["global_step"],
        "steps_per_s": shown.summary["steps_per_s"],
        "gpus": len({gpu for each in tasks for gpu in each["gpus"]}),
        "utilisation": sum(busy) / len(busy) if busy else None,
    }


def page(stages: Stages) -> str:
    """The page."""
    parts = [_HEAD]
    for stage, title in STAGES.items():
        own = stages.get(str(stage))
        parts.append(f"## {title}\n")
        parts.append(f"{NOT_YET}\n" if own is None else _stage(stage, own))
    return "\n".join(parts)


def _stage(stage: int, own: Mapping[str, Any]) -> str:
    steps: Mapping[str, Mapping[str, Any]] = own["steps"]
    lines = ["| | |", "| --- | --- |"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in own["facts"].items() if value]
    lines += ["", "| step | check | result | figure, or reason |", "| --- | --- | --- | --- |"]
    for name, each in steps.items():
        lines += ["| " + " | ".join(map(_cell, (name, *row))) + " |" for row in each["rows"]]
    trained = {name: each["training"] for name, each in steps.items() if each["training"]}
    if trained:
        lines += ["", "| training | GPUs | global steps | steps/s | GPU utilization |"]
        lines += ["| --- | ---: | ---: | ---: | ---: |"]
        lines += [_speed(name, each) for name, each in trained.items()]
    if samples_of(own):
        lines += ["", f"![GPU utilization over time]({picture_name(stage)})"]
    return "\n".join(lines) + "\n"


def samples_of(stage: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The samples of each training of a stage that has some."""
    return {name: each["samples"] for name, each in stage["steps"].items() if each["samples"]}


def _speed(name: str, each: Mapping[str, Any]) -> str:
    speed, busy = each["steps_per_s"], each["utilisation"]
    cells = [
        name,
        str(each["gpus"]),
        f"{each['global_step']:,}",
        "unknown" if speed is None else f"{speed:,.0f}",
        "unknown" if busy is None else f"{busy:.0%}",
    ]
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """A text in a table: an error may hold any character."""
    safe = " ".join(str(text).split())
    for special in "\\|<>[]`*_":
        safe = safe.replace(special, f"\\{special}" if special != "<" else "&lt;")
    return safe


def picture_name(stage: int) -> str:
    """The file of a stage's picture."""
    return f"{NAME}-{stage}.svg"


@settings()
def picture(samples: Mapping[str, Sequence[Mapping[str, Any]]]) -> Figure:
    """The utilization of each GPU over the seconds of each training.

    Args:
        samples: Training → the lines of its `gpu.jsonl`.
    """
    figure = new_figure(_PANEL * len(samples) + 0.4)
    axes = figure.subplots(len(samples), 1, squeeze=False)[:, 0]
    for panel, (name, lines) in zip(axes, samples.items(), strict=True):
        start = min(line["time_unix"] for line in lines)
        by_gpu: dict[str, list[tuple[float, float]]] = {}
        for line in lines:  # tasks that share a GPU have the same values
            if line["utilisation"] is not None:
                point = (line["time_unix"] - start, 100 * line["utilisation"])
                by_gpu.setdefault(line["gpu"], []).append(point)
        for number, (gpu, points) in enumerate(by_gpu.items()):
            look = line_style(number)
            seconds, percent = zip(*points, strict=True)
            panel.plot(seconds, percent, color=look.colour, linestyle=look.line, label=gpu[:12])
        panel.set_title(name, loc="left")
        panel.set_ylim(0, 105)
        panel.set_ylabel("busy, %")
        if by_gpu:
            panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=10)
    axes[-1].set_xlabel("seconds since the first sample")
    return figure


def read(folder: Path) -> Stages:
    """The stages that were run so far."""
    stages: Stages = json.loads((folder / f"{NAME}.json").read_text(encoding="utf-8"))
    return stages


def write(folder: Path, stages: Stages) -> None:
    """Write the page, its file and its pictures."""
    text = json.dumps(stages, indent=1, ensure_ascii=False)
    (folder / f"{NAME}.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / f"{NAME}.md").write_text(page(stages), encoding="utf-8")
    for stage, own in stages.items():
        if samples := samples_of(own):
            (folder / picture_name(int(stage))).write_bytes(svg(picture(samples)))
