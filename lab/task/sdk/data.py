"""MNIST, as four IDX files: the ones that are shipped, or a student's own in the same format.

The files are described at http://yann.lecun.com/exdb/mnist: a header of big-endian 32-bit
numbers (a magic number, then the sizes), then one byte a pixel or a label.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

import lab

SHIPPED: Final = Path(lab.__file__).parent / "datasets" / "mnist"
CHECKSUMS: Final = "SHA256SUMS"

SIDE: Final = 28
PIXELS: Final = SIDE * SIDE
CLASSES: Final = 10

# The standard split keeps 5,000 of the 60,000 training images for validation.
VALIDATION_SHARE: Final = 12

# The split needs two; more than a million are a broken header: it bounds what a file can claim.
_FEWEST_ITEMS: Final = 2
_MOST_ITEMS: Final = 1_000_000
_IMAGES_MAGIC: Final = 0x0803
_LABELS_MAGIC: Final = 0x0801

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


class DataError(Exception):
    """A data file cannot be used.

    Attributes:
        what: What is wrong, and with which file.
        fix: How to fix it, as an imperative phrase.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}; {fix}")
        self.what = what
        self.mend = fix


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Images with their labels.

    They are kept as they are in the file, a byte a pixel: a quarter of the memory that they take
    as numbers in [0, 1], which no program needs of all of them at once.

    Attributes:
        pixels: uint8, shape [n, 784], row by row.
        labels: The digits, int32, shape [n].
    """

    pixels: Bytes
    labels: Ints

    @property
    def images(self) -> Floats:
        """All images, float32 in [0, 1], shape [n, 784]."""
        return scaled(self.pixels)

    def __len__(self) -> int:
        return len(self.labels)

    def batches_per_epoch(self, batch_size: int) -> int:
        """How many whole batches one pass has; what is left over waits for the next shuffle.

        Raises:
            DataError: There are fewer images than one batch takes.
        """
        if batch_size > len(self):
            raise DataError(
                f"a batch of {batch_size} is larger than the {len(self)} training images",
                f"give --batch_size {len(self)} at most",
            )
        return len(self) // batch_size

    def batches(self, batch_size: int, seed: int | Sequence[int]) -> Iterator[tuple[Floats, Ints]]:
        """Draw batches for ever: every epoch is a new random order of all the images.

        Args:
            batch_size: Examples in one batch.
            seed: What determines the orders. Give each worker its own, such as
                `[seed, 1 + task_index]` (not 0: NumPy takes `[5, 0]` for the same seed as `5`).

        Yields:
            Images in [0, 1], shape [batch_size, 784], and labels, shape [batch_size].

        Raises:
            DataError: There are fewer images than one batch takes.
        """
        for chosen in self.choices(batch_size, seed):
            yield scaled(self.pixels[chosen]), self.labels[chosen]

    def choices(self, batch_size: int, seed: int | Sequence[int]) -> Iterator[Indices]:
        """Draw the same batches as `batches` does, as the numbers of their images.

        Yields:
            Indices of the images in a batch, int64, shape [batch_size].

        Raises:
            DataError: There are fewer images than one batch takes.
        """
        count = self.batches_per_epoch(batch_size)
        random = np.random.default_rng(seed)
        while True:
            order = random.permutation(len(self))
            for batch in range(count):
                yield order[batch * batch_size : (batch + 1) * batch_size]


@dataclass(frozen=True, slots=True, eq=False)
class Mnist:
    """The data set in its three parts: 55,000, 5,000 and 10,000 examples as it is shipped."""

    train: Examples
    validation: Examples
    test: Examples


def load_mnist(data_dir: Path | None = None) -> Mnist:
    """Read the data set.

    Args:
        data_dir: A directory with a student's own `train-images-idx3-ubyte`,
            `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, each
            plain or with `.gz`. The last twelfth of its training examples is the validation set.
            None takes the files that are shipped, and checks their SHA-256.

    Returns:
        The images and their labels.

    Raises:
        DataError: A file is missing, unreadable, damaged, or not what its name says.
    """
    _check_directory(data_dir)
    joined = _read_examples(data_dir, "train")
    held_back = math.ceil(len(joined) / VALIDATION_SHARE)
    split = len(joined) - held_back
    return Mnist(
        train=Examples(joined.pixels[:split], joined.labels[:split]),
        validation=Examples(joined.pixels[split:], joined.labels[split:]),
        test=_read_examples(data_dir, "t10k"),
    )


def load_test(data_dir: Path | None = None) -> Examples:
    """Read the test set alone; arguments and errors as those of `load_mnist`."""
    _check_directory(data_dir)
    return _read_examples(data_dir, "t10k")


def train_files(data_dir: Path | None = None) -> tuple[Path, Path]:
    """Find the files of the training images and labels, for a program that reads them by itself.

    Args:
        data_dir: As for `load_mnist`, which has to have read and checked them.

    Returns:
        Two IDX files, gzipped where the name ends in `.gz`; their headers have 16 and 8 bytes.

    Raises:
        DataError: One is missing.
    """
    images, labels = (
        _find(data_dir, f"train-{part}-ubyte") for part in ("images-idx3", "labels-idx1")
    )
    return images, labels


def _check_directory(data_dir: Path | None) -> None:
    """See that the directory with one's own data is there."""
    if data_dir is not None and not data_dir.is_dir():
        raise _error(
            data_dir, "is no directory", "give the directory that holds the four IDX files"
        )


def _read_examples(data_dir: Path | None, part: str) -> Examples:
    images_path = _find(data_dir, f"{part}-images-idx3-ubyte")
    labels_path = _find(data_dir, f"{part}-labels-idx1-ubyte")
    if data_dir is None:
        _check(images_path)
        _check(labels_path)
    pixels = _read(images_path, _IMAGES_MAGIC, (SIDE, SIDE))
    digits = _read(labels_path, _LABELS_MAGIC, ())
    if len(pixels) != len(digits):
        what = f"has {len(digits)} labels for the {len(pixels)} images of {images_path.name}"
        raise _error(labels_path, what, "give one label for each image")
    if digits.max() >= CLASSES:
        raise _error(labels_path, f"has a label {digits.max()}", "give digits from 0 to 9")
    return Examples(pixels.reshape(len(pixels), PIXELS), digits.astype(np.int32))


def scaled(pixels: Bytes) -> Floats:
    """Pixels as numbers in [0, 1]."""
    return np.divide(pixels, np.float32(255), dtype=np.float32)


def _find(data_dir: Path | None, name: str) -> Path:
    if data_dir is None:
        return SHIPPED / f"{name}.gz"
    for candidate in (data_dir / f"{name}.gz", data_dir / name):
        if candidate.is_file():
            return candidate
    raise _error(data_dir, f"has no file {name}.gz or {name}", "give all four of MNIST's IDX files")


def _check(path: Path) -> None:
    """Compare a file that is shipped with its SHA-256."""
    try:
        checksums = (SHIPPED / CHECKSUMS).read_text("ascii").splitlines()
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror})"
        raise DataError(what, "install lab again") from error
    if f"{found}  {path.name}" not in checksums:
        raise _error(
            path, "is damaged: its SHA-256 is not the one that is shipped", "install lab again"
        )


def _read(path: Path, magic: int, shape: tuple[int, ...]) -> Bytes:
    """Read an IDX file whose items have this shape: an array of shape [n, *shape]."""
    try:
        with path.open("rb") as file:
            zipped = path.suffix == ".gz"
            return _parse(path, gzip.GzipFile(fileobj=file) if zipped else file, magic, shape)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: is damaged ({error})", "fetch the file again") from error
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror})"
        raise DataError(what, "check the file and its permissions") from error


def _parse(
    path: Path, stream: BinaryIO | gzip.GzipFile, magic: int, shape: tuple[int, ...]
) -> Bytes:
    layout = struct.Struct(f">{2 + len(shape)}I")
    header = stream.read(layout.size)
    if len(header) < layout.size or header[:4] != magic.to_bytes(4):
        kind = "images" if shape else "labels"
        raise _error(path, f"is no IDX file of {kind}", "give MNIST's IDX format, gzipped or plain")
    _, count, *size = layout.unpack(header)
    if tuple(size) != shape:
        raise _error(path, f"has images of {size[0]}x{size[1]} pixels", f"give {SIDE}x{SIDE}")
    if not _FEWEST_ITEMS <= count <= _MOST_ITEMS:
        raise _error(path, f"claims {count} items", f"give {_FEWEST_ITEMS} to {_MOST_ITEMS}")
    # One byte more than there may be tells a file that goes on, however long it is.
    expected = count * math.prod(shape)
    body = stream.read(expected + 1)
    if len(body) != expected:
        what = "is cut short" if len(body) < expected else "goes on behind its last item"
        raise _error(path, what, "fetch the file again")
    return np.frombuffer(body, np.uint8).reshape(count, *shape)


def _error(path: Path, what: str, fix: str) -> DataError:
    return DataError(f"{path}: {what}", fix)
