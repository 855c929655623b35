"""`tensorflow.examples.tutorials.mnist.input_data`: MNIST as in the tutorials of TensorFlow 1.

The functions and classes have the names, arguments and behaviour of TensorFlow 1.4. The images are
always the lab's, whatever directory a program names. The order of the images is that of TensorFlow
1.4, because printed results depend on it. Each epoch is shuffled. A batch at the end of an epoch
takes the remaining images, and the others from the next epoch.
"""

from __future__ import annotations

import sys
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from lab.protocol.mnist import CLASSES, SIDE, Bytes, scaled
from lab.task.own.mnist import load_data

VALIDATION_SIZE: Final = 5000
SOURCE_URL: Final = "https://storage.googleapis.com/cvdf-datasets/mnist/"

Array = npt.NDArray[Any]


def dense_to_one_hot(labels_dense: Array, num_classes: int) -> npt.NDArray[np.float64]:
    """Convert digits [n] to rows with a single 1 [n, num_classes]."""
    return np.eye(num_classes)[labels_dense]


class DataSet:
    """Images and labels, with a method that returns batches.

    Attributes:
        images: float32 in [0, 1], or uint8; [n, 784], or [n, 28, 28, 1] if not flattened.
        labels: Digits [n], or rows with a single 1 [n, 10].
        num_examples: The number n of images.
        epochs_completed: The number of completed epochs.
    """

    def __init__(self, images: Array, labels: Array, seed: int | None = None) -> None:
        """Store images and labels, and seed NumPy's global generator, as TensorFlow 1.4 does.

        Without a seed, it takes the seed of the graph, set by `tf.set_random_seed`.
        """
        np.random.seed(_graph_seed() if seed is None else seed)
        self.images = images
        self.labels = labels
        self.num_examples = len(images)
        self.epochs_completed = 0
        self._next = 0

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[Array, Array]:
        """Return the next examples; a batch may continue into the next epoch."""
        del fake_data
        start = self._next
        if start == 0 and self.epochs_completed == 0 and shuffle:
            self._shuffle()
        end = start + batch_size
        if end <= self.num_examples:
            self._next = end
            return self.images[start:end], self.labels[start:end]
        self.epochs_completed += 1
        images, labels = self.images[start:], self.labels[start:]
        if shuffle:
            self._shuffle()
        self._next = end - self.num_examples
        return (
            np.concatenate((images, self.images[: self._next])),
            np.concatenate((labels, self.labels[: self._next])),
        )

    def _shuffle(self) -> None:
        order = np.arange(self.num_examples)
        np.random.shuffle(order)
        self.images, self.labels = self.images[order], self.labels[order]


def _graph_seed() -> int | None:
    tensorflow = sys.modules.get("tensorflow.compat.v1")
    if tensorflow is None:
        return None
    seed: int | None = tensorflow.get_seed(None)[0]
    return seed


class Datasets(NamedTuple):
    """The three parts."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(  # noqa: PLR0917  (TensorFlow 1's order of arguments)
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = np.float32,
    reshape: bool = True,
    validation_size: int = VALIDATION_SIZE,
    seed: int | None = None,
    source_url: str = SOURCE_URL,
) -> Datasets:
    """Return the lab's MNIST: 55,000, 5,000 and 10,000 images; ignore directory and address.

    Raises:
        ValueError: The validation set is larger than the training data, or the type is neither
            float32 nor uint8.
    """
    del train_dir, fake_data, source_url  # Nothing is downloaded, and there is no fake data.
    kind = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if kind not in (np.float32, np.uint8):
        raise ValueError(f"Invalid image dtype {kind}, expected uint8 or float32")
    (pixels, digits), test = load_data()
    if not 0 <= validation_size <= len(pixels):
        raise ValueError(
            f"Validation size should be between 0 and {len(pixels)}. Received: {validation_size}."
        )

    def part(pixels: Bytes, digits: Bytes) -> DataSet:
        images: Array = scaled(pixels) if kind == np.float32 else pixels
        images = images.reshape(-1, SIDE * SIDE) if reshape else images[..., np.newaxis]
        return DataSet(images, dense_to_one_hot(digits, CLASSES) if one_hot else digits, seed)

    # The tutorials use the first images for validation, not the last.
    return Datasets(
        train=part(pixels[validation_size:], digits[validation_size:]),
        validation=part(pixels[:validation_size], digits[:validation_size]),
        test=part(*test),
    )


def load_mnist(train_dir: str = "MNIST-data") -> Datasets:
    """Call `read_data_sets` with its defaults: labels are digits."""
    return read_data_sets(train_dir)


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Datasets:
    """Return MNIST, as `tf.contrib.learn.datasets.load_dataset` does.

    Raises:
        ValueError: The name is not `mnist`.
    """
    del size, test_with_fake_data  # TensorFlow 1 uses these only for DBpedia.
    if name != "mnist":
        raise ValueError(f"Name of dataset is not found: {name}; the lab has mnist only")
    return load_mnist()
