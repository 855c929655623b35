"""The collector's rate, its completeness and its memory."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pairs, volume
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT, Workplace
from lab.run.store import RunDir
from lab.task.protocol import Volume

TASKS = len(volume.request().tasks())
FEW, MANY = 25_000, 250_000  # records of each task
QUICK_FEW, QUICK_MANY = 5_000, 20_000
LARGE_REPEATS = 3
WAYS = ("files", "pipe")

FAST = Target("at least", 50_000)
COMPLETE = Target("at most", 0)
FLAT = Target("at most", 1.1)

_PATH = {
    "files": "read from the volume's files, as on the local backend",
    "pipe": "sent by another process in frames through a pipe, as from a container",
}
HOW = (
    "`lab.run.collect.collect` of an ended run of {tasks} tasks with {each:,} records each"
    " ({total:,} in all), {path}. The collector writes the files, parses the records and updates"
    " the plain view (into /dev/null). Without the summary."
)


@dataclass(frozen=True, slots=True)
class Collected:
    """One collection.

    Attributes:
        records: The number of records.
        rate: Records per second.
        memory_bytes: The collector's peak memory.
        lost: Records that the view did not receive, or that differ in the collected files.
        summary_s: The time of the summary afterwards, in seconds; None without a summary.
    """

    records: int
    rate: float
    memory_bytes: int
    lost: int
    summary_s: float | None


def measure(setting: Setting) -> list[Outcome]:
    """Measure the rate of each way, the lost records, and memory for ten times the records."""
    few, many = (QUICK_FEW, QUICK_MANY) if setting.quick else (FEW, MANY)
    repeats = min(setting.pairs, LARGE_REPEATS)
    print_progress(
        f"collector: {setting.pairs} pairs of {TASKS * few:,} records, {repeats} of ten times that"
    )
    small = _both_ways(setting.place, few, setting.pairs, summary=True)
    large = _both_ways(setting.place, many, repeats, summary=False)
    return [
        *(_rate(way, few, small[way], large[way]) for way in WAYS),
        lost([each for sample in (small, large) for way in WAYS for each in sample[way]]),
        _memory(small, large),
    ]


def _both_ways(
    place: Workplace, records: int, repeats: int, *, summary: bool
) -> dict[str, list[Collected]]:
    """Collect a run with this number of records of each task by both ways, interleaved."""
    root = place.folder / f"volume-{records}"
    root.mkdir()
    source = volume.make(root, records)

    def by(way: str) -> Callable[[], Collected]:
        return with_progress(
            f"{way}, {TASKS * records:,} records",
            lambda: collect(place, way, source, records, summary=summary),
            _shown,
        )

    both = pairs.interleaved(by("files"), by("pipe"), repeats)
    shutil.rmtree(root)
    return {"files": [files for files, _ in both], "pipe": [pipe for _, pipe in both]}


def collect(
    place: Workplace, way: str, source: Volume, records: int, *, summary: bool
) -> Collected:
    """Collect the run once in a separate process, and compare the result with the volume."""
    runs = place.folder / "runs"
    args = [way, str(source.root), str(runs), *(["--summary"] if summary else [])]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collecting", *args],
        env=place.environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout)
    total = records * TASKS
    lost = abs(total - found["seen"]) + found["sequence_gaps"]
    lost += missing_lines(source, RunDir(runs / volume.RUN_ID))
    shutil.rmtree(runs)
    rate = total / found["seconds"]
    return Collected(total, rate, found["memory_bytes"], lost, found.get("summary_seconds"))


def missing_lines(source: Volume, run: RunDir) -> int:
    """Return the number of lines that collected files lack; at least 1 for a file that differs."""
    missing = 0
    for task in volume.request().tasks():
        written, collected = source.records(run.run_id, task), run.records(task)
        if _sha256(written) != _sha256(collected):
            missing += max(1, abs(_lines(written) - _lines(collected)))
    return missing


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def _rate(way: str, each: int, small: list[Collected], large: list[Collected]) -> Outcome:
    summaries = [one.summary_s for one in small if one.summary_s is not None]
    return Outcome(
        key=f"collector-{way}",
        what=f"the collector, {way}",
        unit="records/s",
        target=FAST,
        found=pairs.estimate([one.rate for one in small]),
        how=HOW.format(tasks=TASKS, each=each, total=TASKS * each, path=_PATH[way]),
        details={
            f"for {large[0].records:,} records": f"{_median_rate(large):,.0f} records/s",
            "the summary afterwards": f"{pairs.estimate(summaries).median:.1f} s",
        },
        raw={"large_records_per_s": [one.rate for one in large], "summary_s": summaries},
    )


def _median_rate(sample: list[Collected]) -> float:
    return pairs.estimate([one.rate for one in sample]).median


def lost(collected: list[Collected]) -> Outcome:
    """Return the lost records of all collections: a sum, because a median could hide a loss."""
    total = sum(each.lost for each in collected)
    return Outcome(
        key="collector-lost",
        what="records lost by the collector, in all collections",
        unit="records",
        target=COMPLETE,
        found=pairs.Estimate(total, total, total, tuple(float(each.lost) for each in collected)),
        how=(
            "The sum of the records that the view did not receive, the gaps in the sequence"
            " numbers, and the missing lines of collected files whose SHA-256 differs from the"
            " volume's."
        ),
        details={"records in all": f"{sum(each.records for each in collected):,}"},
    )


def _memory(small: dict[str, list[Collected]], large: dict[str, list[Collected]]) -> Outcome:
    both = [
        (float(many.memory_bytes), float(few.memory_bytes))
        for way in WAYS
        for many, few in zip(large[way], small[way], strict=False)
    ]
    records = {name: sample["files"][0].records for name, sample in (("s", small), ("l", large))}
    return Outcome(
        key="collector-memory",
        what=f"the collector's peak memory, {records['l']:,} / {records['s']:,} records",
        unit="ratio",
        target=FLAT,
        found=pairs.ratio(both),
        how=(
            "Peak resident memory of the collecting process (VmHWM) before the summary: each large"
            " collection relative to a small one of the same way. Both ways are in one sample."
        ),
        details={
            f"{sample[way][0].records:,} records, {way}": (
                f"{max(one.memory_bytes for one in sample[way]) / 2**20:.1f} MiB at most"
            )
            for way in WAYS
            for sample in (small, large)
        },
        raw={
            f"{way}_{size}_bytes": [one.memory_bytes for one in sample[way]]
            for way in WAYS
            for size, sample in (("small", small), ("large", large))
        },
    )


def _shown(found: Collected) -> str:
    memory = f"{found.memory_bytes / 2**20:.1f} MiB"
    return f"{found.rate:,.0f} records/s, {memory}, {found.lost} lost"
