"""MNIST, as training programs import it."""

from lab.mnist import (
    CLASSES,
    PIXELS,
    SIDE,
    DataError,
    Examples,
    Floats,
    Indices,
    Ints,
    Mnist,
    load_mnist,
    load_test,
    scaled,
    train_files,
)

__all__ = [
    "CLASSES",
    "PIXELS",
    "SIDE",
    "DataError",
    "Examples",
    "Floats",
    "Indices",
    "Ints",
    "Mnist",
    "load_mnist",
    "load_test",
    "scaled",
    "train_files",
]
