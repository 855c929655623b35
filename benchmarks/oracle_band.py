"""The band of the chapter's final accuracies, from the NumPy reference.

    python -m benchmarks.oracle_band [RUN_DIRECTORY …]

Trains the chapter's model (softmax regression, rate 0.01, batch 100, 50 epochs) from eight seeds,
without concurrency: 82,500 updates of one batch each, like three asynchronous workers, and 27,500
updates of three joined batches each, like three synchronous workers. The band is the 99.9%
prediction interval for one further run. The exit code is 1 if a named run is outside the band.
docs/evidence/chapter/band.json keeps the accuracies; a share of 10,000 images has four digits.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

from lab.task.sdk.data import Mnist, load_mnist
from tests import oracle

SEEDS = range(8)
RATE, WORKERS, UPDATES = 0.01, 3, 27_500
TOTAL_UPDATES = {"async": WORKERS * UPDATES, "sync": UPDATES}
"""Experiment to the updates of all workers."""
KEPT = Path(__file__).parents[1] / "docs/evidence/chapter/band.json"


def final_accuracy(mnist: Mnist, experiment: str, seed: int) -> float:
    """Return the test accuracy after the chapter's training from this seed."""
    streams = [oracle.worker_batches(mnist.train, seed, worker) for worker in range(WORKERS)]
    batches = oracle.in_turn(streams) if experiment == "async" else oracle.joined(streams)
    parameters = oracle.initial_parameters("softmax", seed)
    for step in oracle.train(
        parameters, itertools.islice(batches, TOTAL_UPDATES[experiment]), rate=RATE
    ):
        parameters = step.parameters
    return oracle.accuracy(parameters, mnist.test)


def main(runs: list[str]) -> int:
    """Print the bands and a line for each run, and return the exit code."""
    mnist = load_mnist()
    bands = {}
    kept = {}
    for experiment, updates in TOTAL_UPDATES.items():
        sample = [round(final_accuracy(mnist, experiment, seed), 4) for seed in SEEDS]
        kept[experiment] = {"updates": updates, "accuracies": sample}
        band = bands[experiment] = oracle.prediction_band(sample)
        seeds = " ".join(f"{value:.4f}" for value in sample)
        print(f"{experiment}: seeds {seeds}; band {band.low:.4f} to {band.high:.4f}", flush=True)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    outside = 0
    for run in runs:
        summary = json.loads((Path(run) / "summary.json").read_text(encoding="utf-8"))
        values = [task["accuracy"] for task in summary["tasks"] if task["job_name"] == "worker"]
        inside = all(value in bands[summary["experiment"]] for value in values)
        outside += not inside
        shown = " ".join(f"{value:.4f}" for value in values)
        print(f"{summary['run_id']}: {shown}: {'inside' if inside else 'OUTSIDE'}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
