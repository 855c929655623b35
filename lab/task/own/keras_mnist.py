"""`keras.datasets.mnist.load_data()` with the lab's images: tasks have no Internet.

Nothing is imported until the program imports Keras's module.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from lab.task.after_import import after_import
from lab.variables import LAB_DATA_DIR

if TYPE_CHECKING:  # it takes time at the start of every program
    from lab.mnist import Bytes

    Part = tuple[Bytes, Bytes]

MODULES: Final = frozenset(
    {
        "keras.src.datasets.mnist",  # Keras 3, and Keras 2 from 2.13
        "tf_keras.src.datasets.mnist",
        "keras.datasets.mnist",  # before 2.13
        "tensorflow.python.keras.datasets.mnist",
    }
)
"""The modules that define the function, in each Keras."""


def load_data(path: str = "mnist.npz") -> tuple[Part, Part]:
    """Return MNIST as Keras does: 60,000 and 10,000 images and their labels, all uint8.

    With `--data_dir` these are the user's own data.

    Args:
        path: Keras's name for its copy of the data; not used.

    Raises:
        DataError: A file of the user's own data is missing or damaged.
    """
    del path
    import numpy as np  # noqa: PLC0415

    from lab.mnist import SIDE, Examples, load_mnist  # noqa: PLC0415

    def joined(*parts: Examples) -> Part:
        pixels = np.concatenate([part.pixels for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return pixels.reshape(-1, SIDE, SIDE), labels.astype(np.uint8)

    own = os.environ.get(LAB_DATA_DIR)
    mnist = load_mnist(Path(own) if own else None)
    return joined(mnist.train, mnist.validation), joined(mnist.test)


def provide() -> None:
    """Replace the function in each Keras that the program imports later."""
    after_import(MODULES, _replace)


def _replace(module: ModuleType) -> None:
    try:
        import lab.mnist  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        return  # the program has its own module `lab`
    vars(module)["load_data"] = load_data
