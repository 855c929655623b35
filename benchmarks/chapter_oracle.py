"""What NumPy says of the chapter's training with its start schedule: data for `lab reproduce`.

    python -m benchmarks.chapter_oracle FOLDER

trains whatever is not in the folder yet, a minute or two each and one on each core, and writes
`lab/reproduce/data/oracle.json` and `tests/unit/trainings.json`. OPENBLAS_NUM_THREADS=1 keeps the
trainings out of each other's way. `FOLDER MODE ORDER [VARIANT]` makes a single one.

Several initializations are trained at once with the same batches: their weights stand side by side
in one matrix, so that drawing a batch is paid for once. An order is a seed of the batches. So the
result is a two-way table, initialization by order, and tells apart what either does to a figure.

`async`: three equally fast workers, of which worker 2 joins after 20,900 updates. That start is our
hypothesis, fitted to the book's table: the source does not say why worker 2 is behind, and one late
worker explains all 15 numbers. Two take turns before it, three after it, and worker 2 ends alone.
`sync` makes 27,500 updates of three joined batches.

A variant is a training with a fault: `rate` has three quarters of the learning rate, `leak` the
test images among the training images, `lost` loses every fourth update.
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
"""What the bands follow from: mode, order, variant."""

TESTS: Final = (("async", 3, ""), ("async", 0, "rate"), ("async", 0, "leak"), ("async", 0, "lost"))
"""What tests take for runs."""

INITIALS: Final = tuple(range(1, 9))
"""Seeds of the initial weights: those that `lab reproduce` gives to its runs, too."""

JOINS: Final = 20_900
"""Updates before worker 2 joins; fitted to the book's table."""

WORKERS, STEPS_PER_EPOCH, RATE, BATCH = 3, 550, 0.01, 100
PRINTED_EPOCHS: Final = (9, 19, 29, 39, 49)
RECORD_EVERY: Final = 110
LATE_EPOCH: Final = 40
"""From this epoch on a worker's losses count as late."""

NEAR: Final = 110
"""So many updates of a worker, up to a printed one, show how the loss varies among batches."""

EARLY: Final = 300
"""The mean loss of so many updates is kept, so that a test can train them again and compare."""

TESTED: Final = {"async": range(54_000, 82_501, 1_500), "sync": range(18_000, 27_501, 500)}
"""The updates after which the parameters are tested."""


def turns(own_steps: int, joins: int) -> Iterator[int]:
    """Whose update comes next: equally fast workers, of which worker 2 joins later.

    Args:
        own_steps: Updates that each worker makes.
        joins: Updates that the other two make before it joins.
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
    """Softmax regressions side by side: weights [784, models * 10], biases [models * 10]."""

    def __init__(self, seeds: Sequence[int]) -> None:
        parts = [oracle.initial_parameters("softmax", seed) for seed in seeds]
        self.weights: Floats = np.concatenate([part["weights"] for part in parts], axis=1)
        self.biases: Floats = np.concatenate([part["biases"] for part in parts])
        self._count = len(seeds)

    def step(self, images: Floats, labels: Ints, rate: float) -> Floats:
        """Descend by one batch; the loss of each before it, shape [initializations]."""
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
        """The share of images that each tells right."""
        out = examples.images @ self.weights + self.biases
        told = out.reshape(len(examples), self._count, oracle.CLASSES).argmax(2)
        return [float(x) for x in (told == examples.labels[:, None]).mean(0)]


def with_test_images(mnist: Mnist) -> Examples:
    """The training images, and the test images among them."""
    return Examples(
        np.concatenate([mnist.train.pixels, mnist.test.pixels]),
        np.concatenate([mnist.train.labels, mnist.test.labels]),
    )


def train(mnist: Mnist, mode: str, order: int, variant: str, epochs: int = 50) -> dict[str, Any]:
    """The figures of one training for each initialization."""
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
    """Of each initialization, over batches."""
    table = np.array(several, np.float64)
    return {"mean": table.mean(0).tolist(), "deviation": table.std(0, ddof=1).tolist()}


def rounded(value: Any) -> Any:  # noqa: ANN401
    """Numbers with six digits, so that the data is small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def name_of(mode: str, order: int, variant: str) -> str:
    """The file of one training."""
    return f"{mode}-{order}-{variant}.json"


def make(folder: Path, mode: str, order: int, variant: str) -> None:
    """Train, unless that was done already."""
    path = folder / name_of(mode, order, variant)
    if not path.exists() or not path.stat().st_size:
        trained = train(load_mnist(), mode, order, variant)
        path.write_text(json.dumps(rounded(trained)), encoding="utf-8")


def join(folder: Path, several: Iterable[tuple[str, int, str]], target: Path) -> None:
    """Put trainings into one file, each on a line of its own."""
    lines = [(folder / name_of(*each)).read_text(encoding="utf-8").strip() for each in several]
    text = ",\n".join(lines)
    target.write_text(f'{{"trainings": [\n{text}\n]}}\n', encoding="utf-8")


def main(words: Sequence[str]) -> int:
    """Train one or all, then write both files of data."""
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    if len(words) > 1:
        make(folder, words[1], int(words[2]), words[3] if len(words) > 3 else "")  # noqa: PLR2004
        return 0
    with ProcessPoolExecutor() as pool:
        list(pool.map(make, repeat(folder), *zip(*ORACLE, *TESTS, strict=True)))
    join(folder, ORACLE, ROOT / "lab/reproduce/data/oracle.json")
    join(folder, TESTS, ROOT / "tests/unit/trainings.json")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
