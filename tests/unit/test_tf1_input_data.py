"""MNIST as the tutorials of TensorFlow 1 drew it."""

from __future__ import annotations

import numpy as np
import pytest

from lab.task.sdk.data import load_mnist
from lab.task.tf1.input_data import DataSet, dense_to_one_hot, read_data_sets


def numbered(count: int) -> DataSet:
    return DataSet(np.arange(count), np.arange(count) * 10, seed=3)


def test_the_three_parts_whatever_directory_is_named() -> None:
    found = read_data_sets("/no/such/directory", one_hot=True)
    assert [part.num_examples for part in found] == [55_000, 5_000, 10_000]
    assert found.train.images.shape == (55_000, 784)
    assert found.train.images.dtype == np.float32
    assert found.test.labels.shape == (10_000, 10)
    assert (found.test.labels.sum(axis=1) == 1).all()
    mnist = load_mnist()
    # The first 5,000 images of the file are kept for validation.
    assert (found.validation.images == mnist.train.images[:5_000]).all()
    assert (found.train.labels.argmax(axis=1)[-5_000:] == mnist.validation.labels).all()


def test_as_images_as_bytes_and_with_digits() -> None:
    found = read_data_sets("x", dtype=np.uint8, reshape=False, validation_size=0)
    assert found.train.images.shape == (60_000, 28, 28, 1)
    assert found.train.images.dtype == np.uint8
    assert found.validation.num_examples == 0
    assert found.test.labels[:4].tolist() == load_mnist().test.labels[:4].tolist()


def test_invalid_calls() -> None:
    with pytest.raises(ValueError, match="between 0 and 60000"):
        read_data_sets("x", validation_size=60_001)
    with pytest.raises(ValueError, match="Invalid image dtype float64"):
        read_data_sets("x", dtype=np.float64)


def test_a_batch_across_the_end_continues_in_the_next_epoch() -> None:
    data = numbered(10)
    epoch = [*data.next_batch(4)[0], *data.next_batch(4)[0]]
    assert (data.epochs_completed, len(set(epoch))) == (0, 8)
    images, labels = data.next_batch(4)
    assert data.epochs_completed == 1
    # The rest of the first epoch comes first, and then two of the second.
    assert sorted([*epoch, *images[:2]]) == list(range(10))
    assert labels.tolist() == (images * 10).tolist()
    second = [*images[2:], *data.next_batch(8)[0]]
    assert sorted(second) == list(range(10))
    assert second != sorted(second)
    assert data.epochs_completed == 1  # It ends with the first batch of the next.


def test_in_order_where_nothing_is_shuffled() -> None:
    data = numbered(5)
    drawn = [data.next_batch(2, shuffle=False)[0].tolist() for _ in range(4)]
    assert drawn == [[0, 1], [2, 3], [4, 0], [1, 2]]


def test_a_seed_gives_the_same_batches_again() -> None:
    first, second = (numbered(100).next_batch(10)[0].tolist() for _ in range(2))
    assert first == second


def test_one_hot() -> None:
    assert dense_to_one_hot(np.array([2, 0], np.int32), 3).tolist() == [[0, 0, 1], [1, 0, 0]]
