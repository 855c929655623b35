"""In-graph replication and `sync`, on one host and over slow links; for the lesson."""

from __future__ import annotations

import csv
import json
import math
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.marks import put
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome
from benchmarks.tables import table
from benchmarks.trainings import ROOT, must
from lab.statistics import mean_with_ci

FIGURES: Final = ROOT / "docs/evidence/in-graph.csv"
LESSON: Final = ROOT / "docs/lessons/in-graph.md"
WORKERS: Final = (1, 2, 4)
LINKS: Final = ("", "100mbit")
"""The rate of every node's link; "": no limit."""
EXPERIMENTS: Final = {"in-graph": {"client": ["tf6"]}, "sync": {}}
"""Experiment to its jobs other than ps and worker."""
REPEATS, STEPS, QUICK_STEPS = 3, 300, 30
TIMEOUT_S: Final = 1800
COLUMNS: Final = ("experiment", "link", "workers", "repeat", "run_id", "steps/s")


def measure(setting: Setting) -> list[Outcome]:
    """Sweep both, and write docs/evidence/in-graph.csv; no row, because there is no target."""
    rows = [
        {"experiment": experiment, "link": link, **row}
        for experiment in EXPERIMENTS
        for link in LINKS
        for row in _swept(setting, experiment, link)
    ]
    if not setting.quick:
        with FIGURES.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return []


def config(experiment: str, link: str) -> dict[str, Any]:
    """Return a config with a node for each task, and at most four workers."""
    jobs = {"ps": ["tf1"], "worker": ["tf2", "tf3", "tf4", "tf5"], **EXPERIMENTS[experiment]}
    nodes = [node for several in jobs.values() for node in several]
    return {
        "version": 1,
        "name": "lab-in-graph",
        "nodes": {node: {} for node in nodes},
        "jobs": {job: {"on": several} for job, several in jobs.items()},
        **({"links": {node: {"rate": link} for node in nodes}} if link else {}),
    }


def _swept(setting: Setting, experiment: str, link: str) -> list[dict[str, str]]:
    """Sweep the number of workers, and return a row for each run."""
    folder = setting.place.folder / f"in-graph-{experiment}-{link}"
    folder.mkdir()
    for name in ("scripts", "data"):
        (folder / name).symlink_to(ROOT / name)
    # JSON is YAML.
    (folder / "cluster.yaml").write_text(json.dumps(config(experiment, link)), encoding="utf-8")
    counts, repeats, steps = (
        (WORKERS[:1], 1, QUICK_STEPS) if setting.quick else (WORKERS, REPEATS, STEPS)
    )
    command = [sys.executable, "-m", "lab", "sweep", experiment, "--backend", "local"]
    command += ["--over", f"workers={','.join(map(str, counts))}", "--repeats", str(repeats)]
    command += ["--cluster", str(folder / "cluster.yaml"), "--gpus", "none", "--seed", "1"]
    command += ["--runs-dir", str(folder / "runs"), "--csv", str(folder / "runs.csv")]
    command += [f"--global_steps={steps}", "--record_every=10"]
    must(setting.place, "lab sweep", command, timeout_s=TIMEOUT_S)
    with (folder / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    print_progress(
        f"  {experiment}, {link or 'no limit'}: {', '.join(row['steps/s'] for row in rows)} steps/s"
    )
    return rows


def table_of_file(file: Path = FIGURES) -> str:
    """Return a table of steps a second: the mean over runs ± half of the 95% interval."""
    if not file.is_file():
        return "Not measured yet: run `python -m benchmarks in-graph`.\n"
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))

    def cell(workers: int, experiment: str, link: str) -> str:
        at = (str(workers), experiment, link)
        rates = [
            float(row["steps/s"])
            for row in rows
            if (row["workers"], row["experiment"], row["link"]) == at
        ]
        mean, half = map(float, mean_with_ci(rates))
        return f"{mean:.1f}" if math.isnan(half) else f"{mean:.1f} ± {half:.1f}"

    columns = [(experiment, link) for link in LINKS for experiment in EXPERIMENTS]
    head = [f"`{experiment}`{f', {link}' if link else ''}" for experiment, link in columns]
    body = [[str(count), *(cell(count, *column) for column in columns)] for count in WORKERS]
    return table(["workers", *head], body)


def keep_in_lesson() -> None:
    """Write the table into the lesson, between its marks."""
    text = put(LESSON.read_text(encoding="utf-8"), "in-graph", table_of_file())
    LESSON.write_text(text, encoding="utf-8")
