"""Keep runs whose figures are in the documentation, and write the tables from them.

    python -m benchmarks.evidence                      write the tables
    python -m benchmarks.evidence RUN blog/async       keep a run in docs/evidence/blog/, then write

A kept run has two files: NAME.json (its start and its summary) and NAME.csv (the loss of each step
record).
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, Final, NamedTuple

from rich.console import Console

from benchmarks import in_graph, outgrow
from benchmarks.marks import put
from benchmarks.steps import STEPS
from benchmarks.tables import table
from benchmarks.trainings import ROOT, json_records
from lab.reproduce.claims import load
from lab.reproduce.reference import trainings
from lab.run.summary import Summary
from lab.run.tables import result_table
from tests.oracle import prediction_band

FOLDER: Final = ROOT / "docs/evidence"
STARTED: Final = ("argv", "cluster_file", "faults", "on_failure", "started_unix", "git", "versions")
"""The fields of `run.json` that are kept."""

PRINTED_EVERY: Final = 100
"""The post prints the loss of every hundredth local step."""
SYNC_STRETCHES: Final = ((1, 400), (1000, 1400), (2052, 3000))
"""Global steps, from and to; the last range begins where the post's first one does."""
QUICK: Final = {"async-fast": range(1, 6), "sync-fast": range(1, 4)}
"""Experiments and seeds of the chapter's training by the quick programs."""


class Loss(NamedTuple):
    """One step record: the loss of one batch."""

    task: str
    local_step: int
    global_step: int
    loss: float


class Kept(NamedTuple):
    """A kept run: its start, its summary, and its losses in the order of its files."""

    started: Mapping[str, Any]
    summary: Summary
    losses: Sequence[Loss]


def keep(run: Path, name: str, folder: Path = FOLDER) -> None:
    """Keep a run as NAME.json and NAME.csv.

    Args:
        run: The run's directory.
        name: `blog/async`.
        folder: The directory of the evidence.
    """
    info = json.loads((run / "run.json").read_text(encoding="utf-8"))
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    known = {**info, **info["spec"], "argv": info["spec"]["args"]}
    facts = {each: known[each] for each in STARTED} | {"summary": summary}
    target = folder / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    rows = [
        (path.stem, record["local_step"], record["global_step"], f"{record['loss']:.6g}")
        for path in sorted((run / "tasks").glob("*.jsonl"))
        for record in json_records(path)
        if record["kind"] in STEPS
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([Loss._fields, *rows])
    target.with_suffix(".csv").write_text(text.getvalue(), encoding="utf-8")


def read(name: str, folder: Path = FOLDER) -> Kept:
    """Read a kept run.

    Raises:
        FileNotFoundError: No run of this name is kept.
    """
    file = folder / f"{name}.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    with file.with_suffix(".csv").open(encoding="utf-8", newline="") as lines:
        losses = [
            Loss(row["task"], int(row["local_step"]), int(row["global_step"]), float(row["loss"]))
            for row in csv.DictReader(lines)
        ]
    return Kept(facts, Summary.from_json(json.dumps(facts.pop("summary"))), losses)


def outcome(name: str) -> str:
    """Return the table that `lab run` prints at a run's end."""
    shown = Console(file=io.StringIO(), width=80, record=True)
    shown.print(result_table(read(name).summary))
    lines = [line.rstrip() for line in shown.export_text().splitlines()]
    return "\n".join(["```", *lines, "```", ""])


def within(losses: Sequence[Loss], since: int, until: int) -> list[float]:
    """Return the losses of every hundredth local step between two global steps, inclusive."""
    return [
        each.loss
        for each in losses
        if since <= each.global_step <= until and each.local_step % PRINTED_EVERY == 0
    ]


def described(values: Sequence[float]) -> list[str]:
    """Return the number, minimum, mean and maximum of values."""
    spread = (min(values), fmean(values), max(values))
    return [f"{len(values)}", *(f"{value:.4f}" for value in spread)]


def nearest(losses: Sequence[Loss], step: int) -> float:
    """Return the loss that was recorded nearest to a global step."""
    return min(losses, key=lambda each: abs(each.global_step - step)).loss


def beside_the_post() -> str:
    """Return a table of the mean losses in two ranges, in the post and in the kept run."""
    losses = read("blog/async").losses
    rows = []
    for claim in load("blog-async").claims:
        if claim.measure == "losses_near":
            steps = claim.keys["steps"]
            ours = geometric_mean(nearest(losses, step) for step in steps)
            where = f"{min(steps):,} to {max(steps):,}"
            rows.append([where, f"{len(steps)}", f"{claim.value:.4f}", f"{ours:.4f}"])
    return table(["global steps", "losses", "the post", "here"], rows)


def sync_rows() -> str:
    """Return a table of the first and last three lines of each worker, as in the post."""
    losses = read("blog/sync").losses
    rows = []
    for task in dict.fromkeys(each.task for each in losses):
        lines = [e for e in losses if e.task == task and e.local_step % PRINTED_EVERY == 0]
        rows += [
            [task, f"{each.local_step:,}", f"{each.global_step:,}", f"{each.loss:.4f}"]
            for each in (*lines[:3], *lines[-3:])
        ]
    return table(["worker", "local step", "global step", "loss"], rows)


def sync_losses() -> str:
    """Return a table of losses in ranges, of the synchronous and the asynchronous run."""
    several = {way: read(f"blog/{way}").losses for way in ("sync", "async")}
    rows = [
        [f"{since:,} to {until:,}, {way}", *described(within(losses, since, until))]
        for since, until in SYNC_STRETCHES
        for way, losses in several.items()
    ]
    return table(["global steps", "losses", "minimum", "mean", "maximum"], rows)


def band() -> str:
    """Return a table of the NumPy reference's accuracies, and the band for one further run."""
    rows = []
    for mode in ("async", "sync"):
        found = trainings(mode)[0]["accuracy"]
        limits = prediction_band(found)
        seeds = " ".join(f"{value:.4f}" for value in found)
        rows.append([mode, seeds, f"{limits.low:.4f} to {limits.high:.4f}"])
    return table(["", "accuracy, seeds 1 to 8", "band"], rows)


def quick() -> str:
    """Return a table of the chapter's training by the quick programs, a row for each run."""
    rows = []
    for experiment, seeds in QUICK.items():
        for seed in seeds:
            summary = read(f"chapter/{experiment}-{seed}").summary
            counted = "yes" if summary.updates_conserved else "NO"
            shown = f"{summary.accuracy:.4f}", f"{summary.global_step:,}"
            rows.append([experiment, f"{seed}", *shown, counted])
    return table(["experiment", "seed", "accuracy", "global steps", "every update counted"], rows)


def killed() -> str:
    """Return a table of two trainings in which one task was killed."""
    rows = []
    for name in ("in-graph/killed-client", "in-graph/killed-worker"):
        kept = read(name)
        fault = f'`--fault "{kept.started["faults"][0]}" --on-failure {kept.started["on_failure"]}`'
        summary = kept.summary
        rows.append([f"`{summary.experiment}`, {fault}", summary.state, f"{summary.global_step:,}"])
    return table(["", "the run", "last global step"], rows)


PAGES: Final[Mapping[str, Mapping[str, Callable[[], str]]]] = {
    "docs/evidence/blog.md": {
        "async": lambda: outcome("blog/async"),
        "async-losses": beside_the_post,
        "sync": lambda: outcome("blog/sync"),
        "sync-rows": sync_rows,
        "sync-losses": sync_losses,
    },
    "docs/evidence/chapter.md": {
        "band": band,
        "async": lambda: outcome("chapter/async"),
        "sync": lambda: outcome("chapter/sync"),
        "quick": quick,
    },
    "docs/outgrow.md": {"simulated": outgrow.printed},
    "docs/lessons/in-graph.md": {"in-graph": in_graph.table_of_file, "killed": killed},
}
"""Page to the names of its marks, and the functions for the texts between them."""


def written(page: str, text: str) -> str:
    """Return the text of a page with new tables.

    Raises:
        ValueError: The page lacks a mark.
    """
    for name, make in PAGES[page].items():
        text = put(text, name, make())
    return text


def main(argv: Sequence[str]) -> int:
    """Keep the named run, if any, and write all pages."""
    if len(argv) not in (0, 2):
        print("error: give a run directory and a name, or no argument", file=sys.stderr)
        return 2
    if argv:
        keep(Path(argv[0]), argv[1])
    for page in PAGES:
        path = ROOT / page
        path.write_text(written(page, path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
