"""Sample this box's cards as a run that is followed does, and say what that cost; a process alone.

python -m benchmarks.sampling FOLDER SECONDS
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.gpu import read_host
from lab.run.collect import View
from lab.run.gpu_metrics import sampled
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import RunSpec
from lab.task.protocol.states import State

OPENED_S = 30.0


class First(View):
    """Says when the first sample is there: opening the driver belongs to no second of the run."""

    def __init__(self) -> None:
        self.came = threading.Event()

    def gpus(self, use: Mapping[str, float]) -> None:
        """A sample."""
        self.came.set()

    def notice(self, line: str) -> None:
        """Why there is no sample."""
        print(line, file=sys.stderr)


def main(argv: Sequence[str]) -> int:
    """Prints one JSON object: seconds of CPU time of the process, seconds, cards, lines."""
    folder, seconds = Path(argv[0]), float(argv[1])
    cards = [gpu.device_id for gpu in read_host().gpus]
    tasks = tuple({"task": f"worker-{index}", "gpus": [card]} for index, card in enumerate(cards))
    run, view = RunDir(folder / "run"), First()
    info = RunInfo("run", RunSpec("async"), state=State.TRAINING, tasks=tasks)
    run.create(info)
    with sampled(run, info, view):
        if not view.came.wait(OPENED_S):
            return 1
        began, cpu_s = time.monotonic(), time.process_time()
        time.sleep(seconds)
        cpu_s, took_s = time.process_time() - cpu_s, time.monotonic() - began
    lines = len(run.gpu_samples.read_bytes().splitlines())
    print(json.dumps({"cpu_s": cpu_s, "seconds": took_s, "cards": len(cards), "lines": lines}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
