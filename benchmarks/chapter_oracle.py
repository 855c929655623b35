"""The NumPy reference of the chapter's trainings, for `lab reproduce`.

    python -m benchmarks.chapter_oracle FOLDER

makes the trainings that are not in the folder yet, one on each core and one to two minutes each. It
writes `lab/study/reproduce/data/reference.json`. With OPENBLAS_NUM_THREADS=1 the trainings do not
compete for cores.

Several initializations are trained together with the same batches: one matrix contains all their
weights, so that each batch is drawn once. An order is a seed of the batches. The result is a
two-way table, order by initialization.

`async`: three equally fast workers take turns, from the first update on. `sync` makes 27,500
updates of three joined batches. No parameter is fitted to a source.

A variant is a training with a fault: `rate` has three quarters of the learning rate, `leak` has the
test images among the training images, and `lost` loses every fourth update. Their effects are the
deviations that matter in the claim files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import Any, Final

import numpy as np

from lab.protocol.mnist import Examples, Floats, Ints, Mnist, load_mnist
from tests import oracle

TARGET: Final = Path(__file__).parents[1] / "lab/study/reproduce/data/reference.json"

TRAININGS: Final = (
    *((mode, order, "") for mode in ("async", "sync") for order in range(3)),
    *(("async", 0, variant) for variant in ("rate", "leak", "lost")),
)
"""All trainings: mode, order, variant."""

INITIALS: Final = tuple(range(1, 9))
"""Seeds of the initial weights; `lab reproduce` gives the same seeds to its runs."""

WORKERS, STEPS_PER_EPOCH, EPOCHS, RATE, BATCH = 3, 550, 50, 0.01, 100
RECORD_EVERY: Final = 110
LATE_EPOCH: Final = 40
"""From this epoch on a worker's losses count as late."""

PRINTED_STEPS: Final = (
    *(10896, 22453, 39019, 55513, 72002),
    *(11085, 22728, 39074, 55599, 72105),
    *(37367, 53859, 70299, 76999, 82499),
)
"""The global steps of the losses that the book prints."""

EARLY: Final = 300
"""The number of first updates whose mean loss is kept; a test repeats them and compares."""


def turns(own_steps: int, joins: int = 0) -> Iterator[int]:
    """Yield the worker of each update, for equally fast workers of which worker 2 joins later.

    Args:
        own_steps: Updates of each worker.
        joins: Updates of the other two workers before worker 2 joins; 0: all start together.
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


def train(mnist: Mnist, mode: str, order: int, variant: str) -> dict[str, Any]:
    """Train all initializations once.

    Returns:
        For each initialization: the final accuracy; the mean loss from epoch 40 on, of the batches
        that a run records; the geometric mean of the losses at `PRINTED_STEPS` (1.0 for `sync`);
        and the mean loss of the first `EARLY` updates.
    """
    images = with_test_images(mnist) if variant == "leak" else mnist.train
    rate = RATE * (0.75 if variant == "rate" else 1)
    own = EPOCHS * STEPS_PER_EPOCH
    streams = [oracle.worker_batches(images, 1000 + order, index) for index in range(WORKERS)]
    models = Stack(INITIALS)
    early, late, printed = [], [], []
    made = [0] * WORKERS
    for update, worker in enumerate(turns(own) if mode == "async" else range(own), start=1):
        if mode == "async":
            made[worker] += 1
            batch = next(streams[worker])
        else:
            made = [update] * WORKERS
            batch = tuple(map(np.concatenate, zip(*map(next, streams), strict=True)))
        mine = made[worker % WORKERS]
        lost = variant == "lost" and update % 4 == 0
        losses = models.step(*batch, 0.0 if lost else rate)
        if update <= EARLY:
            early.append(losses)
        if mine % RECORD_EVERY == 0 and mine > LATE_EPOCH * STEPS_PER_EPOCH:
            late.append(losses)
        if mode == "async" and update in PRINTED_STEPS:
            printed.append(np.log(losses))
    return {
        "mode": mode,
        "order": order,
        "variant": variant,
        "seeds": list(INITIALS),
        "accuracy": models.accuracies(mnist.test),
        "late_loss": np.mean(late, axis=0).tolist(),
        "printed_loss": np.exp(np.mean(printed or [np.zeros(len(INITIALS))], axis=0)).tolist(),
        "early_loss": np.mean(early, axis=0).tolist(),
    }


def rounded(value: Any) -> Any:  # noqa: ANN401
    """Round numbers to six digits, to keep the file small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return [rounded(each) for each in value] if isinstance(value, list) else value


def make(folder: Path, mode: str, order: int, variant: str) -> str:
    """Train, unless the training's file exists; return its content, a line."""
    path = folder / f"{mode}-{order}-{variant}.json"
    if not path.exists() or not path.stat().st_size:
        trained = train(load_mnist(), mode, order, variant)
        path.write_text(json.dumps({name: rounded(each) for name, each in trained.items()}))
    return path.read_text()


def main(argv: Sequence[str]) -> int:
    """Make all trainings, and write the data file."""
    folder = Path(argv[0])
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        lines = list(pool.map(make, repeat(folder), *zip(*TRAININGS, strict=True)))
    text = ",\n".join(lines)
    TARGET.write_text(f'{{"trainings": [\n{text}\n]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
