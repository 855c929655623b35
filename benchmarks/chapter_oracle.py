"""The NumPy reference of the chapter's training with its start schedule, for `lab reproduce`.

    python -m benchmarks.chapter_oracle FOLDER

makes the trainings that are not in the folder yet, one on each core and one to two minutes each. It
writes `lab/reproduce/data/oracle.json` and `tests/unit/trainings.json`. With OPENBLAS_NUM_THREADS=1
the trainings do not compete for cores. `FOLDER MODE ORDER [VARIANT]` makes one training.

Several initializations are trained together with the same batches: one matrix contains all their
weights, so that each batch is drawn once. An order is a seed of the batches. The result is a
two-way table, initialization by order, which separates the two effects on a figure.

`async`: three equally fast workers, of which worker 2 joins after 20,900 updates. This start is our
hypothesis, fitted to the book's table: the source does not explain why worker 2 is behind, and one
late worker explains all 15 numbers. Two workers alternate before the start, three after it, and at
the end worker 2 trains alone. `sync` makes 27,500 updates of three joined batches.

A variant is a training with a fault: `rate` has three quarters of the learning rate, `leak` has the
test images among the training images, and `lost` loses every fourth update.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.task.sdk.data import Examples, Floats, Ints, Mnist, load_mnist
from tests import oracle

ROOT: Final = Path(__file__).parents[1]

ORACLE: Final = tuple((mode, order, "") for mode in ("async", "sync") for order in range(3))
"""The trainings from which the bands are computed: mode, order, variant."""

TESTS: Final = (("async", 3, ""), ("async", 0, "rate"), ("async", 0, "leak"), ("async", 0, "lost"))
"""The trainings that tests use as runs."""

INITIALS: Final = tuple(range(1, 9))
"""Seeds of the initial weights; `lab reproduce` gives the same seeds to its runs."""

JOINS: Final = 20_900
"""Updates before worker 2 joins; fitted to the book's table."""

WORKERS, STEPS_PER_EPOCH, RATE, BATCH = 3, 550, 0.01, 100
PRINTED_EPOCHS: Final = (9, 19, 29, 39, 49)
RECORD_EVERY: Final = 110
LATE_EPOCH: Final = 40
"""From this epoch on a worker's losses count as late."""

NEAR: Final = 110
"""A worker's updates, up to a printed one, from which the spread of the loss is computed."""

EARLY: Final = 300
"""The number of first updates whose mean loss is kept; a test repeats them and compares."""

TESTED: Final = {"async": range(54_000, 82_501, 1_500), "sync": range(18_000, 27_501, 500)}
"""The updates after which the parameters are tested."""


def turns(own_steps: int, joins: int) -> Iterator[int]:
    """Yield the worker of each update, for equally fast workers of which worker 2 joins later.

    Args:
        own_steps: Updates of each worker.
        joins: Updates of the other two workers before worker 2 joins.
    """
    made = [0] * WORKERS
    total = 0
    while any(count < own_steps for count in made):
        for worker in range(WORKERS):
            if made[worker] < own_steps and (worker != WORKERS - 1 or total >= joins):
                made[worker] += 1
                total += 1
                yield worker


class Stack:
    """Several softmax regressions in one: weights [784, models * 10], biases [models * 10]."""

    def __init__(self, seeds: Sequence[int]) -> None:
        parts = [oracle.initial_parameters("softmax", seed) for seed in seeds]
        self.weights: Floats = np.concatenate([part["weights"] for part in parts], axis=1)
        self.biases: Floats = np.concatenate([part["biases"] for part in parts])
        self._count = len(seeds)

    def step(self, images: Floats, labels: Ints, rate: float) -> Floats:
        """Make one update; return each model's loss before it, shape [initializations]."""
        rows = np.arange(len(labels))
        out = (images @ self.weights + self.biases).reshape(
            len(labels), self._count, oracle.CLASSES
        )
        out -= out.max(2, keepdims=True)
        shares = np.exp(out)
        total = shares.sum(2, keepdims=True)
        losses: Floats = (np.log(total[:, :, 0]) - out[rows, :, labels]).mean(0)
        shares /= total
        shares[rows, :, labels] -= 1
        error = shares.reshape(len(labels), -1) * np.float32(rate / len(labels))
        self.weights -= images.T @ error
        self.biases -= error.sum(0)
        return losses

    def accuracies(self, examples: Examples) -> list[float]:
        """Return the share of images that each model classifies correctly."""
        out = examples.images @ self.weights + self.biases
        predicted = out.reshape(len(examples), self._count, oracle.CLASSES).argmax(2)
        return [float(x) for x in (predicted == examples.labels[:, None]).mean(0)]


def with_test_images(mnist: Mnist) -> Examples:
    """Return the training images and the test images as one set."""
    return Examples(
        np.concatenate([mnist.train.pixels, mnist.test.pixels]),
        np.concatenate([mnist.train.labels, mnist.test.labels]),
    )


def train(mnist: Mnist, mode: str, order: int, variant: str, epochs: int = 50) -> dict[str, Any]:
    """Train all initializations once, and return their figures."""
    images = with_test_images(mnist) if variant == "leak" else mnist.train
    rate = RATE * (0.75 if variant == "rate" else 1)
    own = epochs * STEPS_PER_EPOCH
    streams = [oracle.worker_batches(images, 1000 + order, index) for index in range(WORKERS)]
    models = Stack(INITIALS)
    near: dict[str, list[Floats]] = {}
    accuracies: dict[str, list[float]] = {}
    late: list[Floats] = []
    tested = TESTED["sync" if mode == "sync" else "async"]
    early: list[Floats] = []
    made = [0] * WORKERS
    joins = JOINS if mode == "async" else 0
    rounds = turns(own, joins) if mode != "sync" else iter([-1] * own)
    for update, worker in enumerate(rounds):
        if worker < 0:
            batches = [next(stream) for stream in streams]
            batch = (
                np.concatenate([b[0] for b in batches]),
                np.concatenate([b[1] for b in batches]),
            )
        else:
            batch = next(streams[worker])
        lost = variant == "lost" and update % 4 == 3  # noqa: PLR2004
        losses = models.step(*batch, 0.0 if lost else rate)
        if update < EARLY:
            early.append(losses)
        for each in range(WORKERS) if worker < 0 else (worker,):
            made[each] += 1
            epoch = (made[each] - 1) // STEPS_PER_EPOCH
            if made[each] % RECORD_EVERY == 0 and epoch >= LATE_EPOCH:
                late.append(losses)
            within = (made[each] - 1) % STEPS_PER_EPOCH
            if epoch in PRINTED_EPOCHS and within >= STEPS_PER_EPOCH - NEAR:
                near.setdefault(f"{each}.{epoch}", []).append(np.log(losses))
        if update + 1 in tested:
            accuracies[f"{update + 1}"] = models.accuracies(mnist.test)
    return {
        "mode": mode, "order": order, "variant": variant, "initials": list(INITIALS),
        "joins": joins, "accuracy": accuracies,
        "log_loss": {name: _mean_and_deviation(several) for name, several in near.items()},
        "early_loss": np.mean(early, axis=0).tolist(),
        "late_loss": [float(x) for x in np.mean(late, axis=0)] if late else [],
    }  # fmt: skip


def _mean_and_deviation(several: Sequence[Floats]) -> dict[str, list[float]]:
    """Return each initialization's mean and standard deviation over the batches."""
    table = np.array(several, np.float64)
    return {"mean": table.mean(0).tolist(), "deviation": table.std(0, ddof=1).tolist()}


def rounded(value: Any) -> Any:  # noqa: ANN401
    """Round numbers to six digits, to keep the files small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def name_of(mode: str, order: int, variant: str) -> str:
    """Return the file name of one training."""
    return f"{mode}-{order}-{variant}.json"


def make(folder: Path, mode: str, order: int, variant: str) -> None:
    """Train, unless the training's file exists."""
    path = folder / name_of(mode, order, variant)
    if not path.exists() or not path.stat().st_size:
        trained = train(load_mnist(), mode, order, variant)
        path.write_text(json.dumps(rounded(trained)), encoding="utf-8")


def join(folder: Path, several: Iterable[tuple[str, int, str]], target: Path) -> None:
    """Write trainings into one file, one on each line."""
    lines = [(folder / name_of(*each)).read_text(encoding="utf-8").strip() for each in several]
    text = ",\n".join(lines)
    target.write_text(f'{{"trainings": [\n{text}\n]}}\n', encoding="utf-8")


def main(argv: Sequence[str]) -> int:
    """Make one training; or make all, and write both data files."""
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    if len(argv) > 1:
        make(folder, argv[1], int(argv[2]), argv[3] if len(argv) > 3 else "")  # noqa: PLR2004
        return 0
    with ProcessPoolExecutor() as pool:
        list(pool.map(make, repeat(folder), *zip(*ORACLE, *TESTS, strict=True)))
    join(folder, ORACLE, ROOT / "lab/reproduce/data/oracle.json")
    join(folder, TESTS, ROOT / "tests/unit/trainings.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
