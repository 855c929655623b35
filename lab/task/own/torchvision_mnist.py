"""`torchvision.datasets.MNIST` with the lab's images, and the place of what it cannot download.

Nothing is imported until the program imports torchvision's modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lab.task.after_import import after_import
from lab.task.own.keras_mnist import load_data

_DATASET: Final = "torchvision.datasets.mnist"
_DOWNLOADS: Final = "torchvision.datasets.utils"


def provide() -> None:
    """Replace what torchvision reads and downloads, when the program imports it."""
    after_import({_DATASET}, _replace_mnist)
    after_import({_DOWNLOADS}, _name_the_place)


def _replace_mnist(module: ModuleType) -> None:
    """Give MNIST, but not the data sets derived from it, the images that each rank reads."""
    try:
        import lab.mnist  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        return  # the program has its own module `lab`
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
