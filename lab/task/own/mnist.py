"""`keras.datasets.mnist` and `torchvision.datasets.MNIST` with the lab's images.

Tasks have no Internet. Nothing is imported until the program imports a module of Keras or
torchvision.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from lab.base.variables import LAB_DATA_DIR
from lab.task.after_import import after_import

if TYPE_CHECKING:  # it takes time at the start of every program
    from lab.protocol.mnist import Bytes

    Part = tuple[Bytes, Bytes]

_OF_KERAS: Final = frozenset(
    {
        "keras.src.datasets.mnist",  # Keras 3, and Keras 2 from 2.13
        "tf_keras.src.datasets.mnist",
        "keras.datasets.mnist",  # before 2.13
        "tensorflow.python.keras.datasets.mnist",
    }
)
"""The modules that define `load_data`, in each Keras."""


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

    from lab.protocol.mnist import SIDE, Examples, load_mnist  # noqa: PLC0415

    def joined(*parts: Examples) -> Part:
        pixels = np.concatenate([part.pixels for part in parts])
        labels = np.concatenate([part.labels for part in parts])
        return pixels.reshape(-1, SIDE, SIDE), labels.astype(np.uint8)

    own = os.environ.get(LAB_DATA_DIR)
    mnist = load_mnist(Path(own) if own else None)
    return joined(mnist.train, mnist.validation), joined(mnist.test)


def provide() -> None:
    """Replace what Keras and torchvision read, when the program imports them."""
    after_import(_OF_KERAS, _replace_keras)
    after_import({"torchvision.datasets.mnist"}, _replace_torchvision)
    after_import({"torchvision.datasets.utils"}, _name_the_place)


def _has_images() -> bool:
    """Whether `lab` can be imported: the program may have its own module of this name."""
    try:
        import lab.protocol.mnist  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        return False
    return True


def _replace_keras(module: ModuleType) -> None:
    if _has_images():
        vars(module)["load_data"] = load_data


def _replace_torchvision(module: ModuleType) -> None:
    """Give MNIST, but not the data sets derived from it, the images that each rank reads."""
    if not _has_images():
        return
    torch, mnist = sys.modules["torch"], module.MNIST
    exists, load = mnist._check_exists, mnist._load_data

    def check_exists(data_set: Any) -> bool:  # noqa: ANN401
        return type(data_set) is mnist or bool(exists(data_set))

    def load_images(data_set: Any) -> Any:  # noqa: ANN401
        if type(data_set) is not mnist or exists(data_set):
            return load(data_set)
        images, labels = load_data()[0 if data_set.train else 1]
        return torch.from_numpy(images.copy()), torch.from_numpy(labels.copy()).long()

    mnist._check_exists, mnist._load_data = check_exists, load_images


def _name_the_place(module: ModuleType) -> None:
    """Say where the program looks for a file that it cannot download."""
    download: Callable[..., None] = module.download_url

    def download_url(url: str, root: str | Path, *more: Any, **named: Any) -> None:  # noqa: ANN401
        try:
            download(url, root, *more, **named)
        except OSError as error:
            place = root if Path(root).is_absolute() else f"{root} beside the program"
            raise OSError(f"tasks have no Internet: put {url} into {place}") from error

    vars(module)["download_url"] = download_url
