"""The collector: how fast, whether all comes, and with how much memory."""

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
from benchmarks.measure import Setting, say, told
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
    "pipe": "shipped by another process in frames through a pipe, as from a container",
}
HOW = (
    "An ended run of {tasks} tasks with {each:,} records each ({total:,} in all), {path}; brought"
    " home by `lifecycle.bring_home`: files written, records parsed and folded, the plain view told"
    " (into /dev/null). Without the summary."
)


@dataclass(frozen=True, slots=True)
class Collected:
    """One collection.

    Attributes:
        records: How many there were.
        rate: Records per second.
        memory_bytes: The collector's peak.
        lost: Records that the view did not see, or that are not at home as they were written.
        summary_s: How long the summary took afterwards, in seconds; None where there was none.
    """

    records: int
    rate: float
    memory_bytes: int
    lost: int
    summary_s: float | None


def measure(setting: Setting) -> list[Outcome]:
    """The rate of each way, what was lost, and memory for ten times the records."""
    few, many = (QUICK_FEW, QUICK_MANY) if setting.quick else (FEW, MANY)
    repeats = min(setting.pairs, LARGE_REPEATS)
    say(f"collector: {setting.pairs} pairs of {TASKS * few:,} records, {repeats} of ten times that")
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
    """Collect a run with so many records of each task by one way and the other in turn."""
    root = place.folder / f"volume-{records}"
    root.mkdir()
    source = volume.make(root, records)

    def by(way: str) -> Callable[[], Collected]:
        return told(
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
    """Bring the run home once, in a process of its own, and compare what came with what was."""
    home = place.folder / "home"
    words = [way, str(source.root), str(home), *(["--summary"] if summary else [])]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collecting", *words],
        env=place.environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    said = json.loads(done.stdout)
    total = records * TASKS
    lost = abs(total - said["seen"]) + said["sequence_gaps"]
    lost += missing_at_home(source, RunDir(home / volume.RUN_ID))
    shutil.rmtree(home)
    rate = total / said["seconds"]
    return Collected(total, rate, said["memory_bytes"], lost, said.get("summary_seconds"))


def missing_at_home(source: Volume, run: RunDir) -> int:
    """Lines by which files at home differ in number; one at least where they differ at all."""
    missing = 0
    for task in volume.request().tasks():
        written, came = source.records(run.run_id, task), run.records(task)
        if _sha256(written) != _sha256(came):
            missing += max(1, abs(_lines(written) - _lines(came)))
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
    """What all collections have lost together: an exact number, and no median could hide it."""
    total = sum(each.lost for each in collected)
    return Outcome(
        key="collector-lost",
        what="records lost by the collector, in all collections",
        unit="records",
        target=COMPLETE,
        found=pairs.Estimate(total, total, total, tuple(float(each.lost) for each in collected)),
        how=(
            "What the view saw is counted, gaps in the sequence numbers are counted, and SHA-256"
            " and lines of every file at home are compared with the volume's. A sum, no median."
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
            "Peak resident memory of the collecting process (VmHWM), before the summary; each large"
            " collection against a small one of the same way, both ways together."
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
