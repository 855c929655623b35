"""The rate at which a run's records are read into a data frame.

`python -m benchmarks.reading RUN` reads one run and prints one JSON object.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pairs, volume
from benchmarks.collecting import peak_memory
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.trainings import ROOT
from lab.run.run_info import RunInfo
from lab.run.store import RunDir

RECORDS, QUICK_RECORDS = 125_000, 2_500  # of each of eight tasks
TARGET = Target("at least", 200_000)
HOW = (
    "`records_frame` of a run with {records:,} records of eight tasks, like those of the"
    " asynchronous program. A new process, which has imported pandas, reads it on one core. The"
    " files are in the page cache."
)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading.

    Attributes:
        seconds: Its duration.
        cpu_s: CPU time of the process in this time, in seconds.
        memory_bytes: The peak memory of the process.
        records: The number of rows in the frame.
    """

    seconds: float
    cpu_s: float
    memory_bytes: int
    records: int

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds


def measure(setting: Setting) -> list[Outcome]:
    """Measure records per second."""
    records = QUICK_RECORDS if setting.quick else RECORDS
    print_progress(f"reading: {setting.pairs} times {8 * records:,} records")
    run = _made(setting.place.folder / "reading", records)
    measured = with_progress("reading", lambda: read(run, 8 * records), _shown)
    found = [measured() for _ in range(setting.pairs)]
    return [
        Outcome(
            key="reading",
            what="records of a run into a data frame",
            unit="records/s",
            target=TARGET,
            found=pairs.estimate([each.rate for each in found]),
            how=HOW.format(records=8 * records),
            details={
                "memory of the process": f"{max(each.memory_bytes for each in found) / 2**20:.0f}"
                " MiB at most"
            },
            raw={"cpu_s": [each.cpu_s for each in found]},
        )
    ]


def read(run: RunDir, records: int) -> Reading:
    """Read the run once.

    Args:
        run: The run.
        records: The number of its records.

    Raises:
        RuntimeError: The process failed, or a record is missing.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.reading", str(run.path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-2000:])
    found = Reading(**json.loads(done.stdout))
    if found.records != records:
        raise RuntimeError(f"{found.records} of {records} records were read")
    return found


def main(argv: Sequence[str]) -> int:
    """Read once, and print the time and the memory."""
    from lab.run.dataframe import records_frame  # noqa: PLC0415  (only this process needs pandas)

    began, cpu_s = time.perf_counter(), time.process_time()
    frame = records_frame(RunDir(Path(argv[0])))
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    print(
        json.dumps(
            {
                "seconds": seconds,
                "cpu_s": cpu_s,
                "memory_bytes": peak_memory(),
                "records": len(frame),
            }
        )
    )
    return 0


def _made(root: Path, records: int) -> RunDir:
    """Write a collected run whose tasks have this number of records each."""
    root.mkdir()
    run = RunDir(volume.make(root, records).run(volume.RUN_ID))
    run.write(RunInfo.of_request(volume.request(), backend="local", project="lab-bench"))
    return run


def _shown(found: Reading) -> str:
    return f"{found.rate:,.0f} records/s, {found.cpu_s:.2f} s of CPU time"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
