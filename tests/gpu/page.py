"""The page `docs/evidence/gpu-box.md`: written from `gpu-box.json`, which holds what was run."""

from __future__ import annotations

import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from lab.gpu import Inventory
from lab.units import MIB
from tests.gpu.steps import STAGES, Step
from tests.gpu.trainings import NOT_RUN, Row

NAME: Final = "gpu-box"
NOT_YET: Final = "Not yet run."
_HEAD: Final = """\
# Trainings on real GPUs

`make test-gpu` writes this page from [`gpu-box.json`](gpu-box.json). The steps are in
`tests/gpu/steps.py`. A step that this host cannot run is "not run", with the reason.
"""

Stages = dict[str, dict[str, Any]]
"""Stage → `facts` of its host, and `steps`: name → its rows."""


def record(shown: Mapping[Step, Sequence[Row]], inventory: Inventory, before: Stages) -> Stages:
    """The stages with what was run now; a stage in which nothing ran stays."""
    after = dict(before)
    for stage in STAGES:
        own = {step.name: rows for step, rows in shown.items() if step.stage == stage}
        if any(row.result != NOT_RUN for rows in own.values() for row in rows):
            steps = {name: [list(row) for row in rows] for name, rows in own.items()}
            after[str(stage)] = {"facts": facts(inventory), "steps": steps}
    return after


def facts(inventory: Inventory) -> dict[str, str]:
    """The date, the GPUs, the driver, and the newest CUDA that it supports."""
    gpus = Counter(f"{gpu.name}, {gpu.memory_bytes // MIB:,} MiB" for gpu in inventory.gpus)
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "GPUs": "; ".join(f"{number} of {name}" for name, number in gpus.items()),
        "driver": inventory.driver,
        "CUDA of the driver": inventory.cuda,
    }


def page(stages: Stages) -> str:
    """The page."""
    return "\n".join([_HEAD, *_parts(stages)])


def _parts(stages: Stages) -> Iterator[str]:
    for stage, title in STAGES.items():
        own = stages.get(str(stage))
        yield f"## {title}\n"
        if own is None:
            yield f"{NOT_YET}\n"
            continue
        yield "| | |\n| --- | --- |"
        yield from (f"| {name} | {_cell(value)} |" for name, value in own["facts"].items() if value)
        yield "\n| step | check | result | figure, or reason |\n| --- | --- | --- | --- |"
        for name, rows in own["steps"].items():
            yield from ("| " + " | ".join(map(_cell, (name, *row))) + " |" for row in rows)
        yield ""


def _cell(text: str) -> str:
    """A text in a table: an error may hold any character."""
    safe = " ".join(str(text).split())
    for special in "\\|<>[]`*_":
        safe = safe.replace(special, f"\\{special}" if special != "<" else "&lt;")
    return safe


def read(folder: Path) -> Stages:
    """The stages that were run so far."""
    file = folder / f"{NAME}.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


def write(folder: Path, stages: Stages) -> None:
    """Write the page and its file."""
    text = json.dumps(stages, indent=1, ensure_ascii=False)
    (folder / f"{NAME}.json").write_text(f"{text}\n", encoding="utf-8")
    (folder / f"{NAME}.md").write_text(page(stages), encoding="utf-8")
