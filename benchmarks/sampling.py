"""Sample this host's GPUs like a client that follows a run, and print the CPU time.

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
    """A view that waits for the first sample, because to open the driver is not measured."""

    def __init__(self) -> None:
        self.arrived = threading.Event()

    def gpus(self, use: Mapping[str, float]) -> None:
        """Receive a sample."""
        self.arrived.set()

    def notice(self, line: str) -> None:
        """Print the reason why there is no sample."""
        print(line, file=sys.stderr)


def main(argv: Sequence[str]) -> int:
    """Print one JSON object: seconds of CPU time of the process, seconds, GPUs, lines."""
    folder, seconds = Path(argv[0]), float(argv[1])
    gpus = [gpu.device_id for gpu in read_host().gpus]
    tasks = tuple({"task": f"worker-{index}", "gpus": [gpu]} for index, gpu in enumerate(gpus))
    run, view = RunDir(folder / "run"), First()
    info = RunInfo("run", RunSpec("async"), state=State.TRAINING, tasks=tasks)
    run.create(info)
    with sampled(run, info, view):
        if not view.arrived.wait(OPENED_S):
            return 1
        began, cpu_s = time.monotonic(), time.process_time()
        time.sleep(seconds)
        cpu_s, took_s = time.process_time() - cpu_s, time.monotonic() - began
    lines = len(run.gpu_samples.read_bytes().splitlines())
    print(json.dumps({"cpu_s": cpu_s, "seconds": took_s, "gpus": len(gpus), "lines": lines}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
