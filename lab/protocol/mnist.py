"""Read MNIST from four IDX files: the shipped ones, or your own in the same format.

The format is described at http://yann.lecun.com/exdb/mnist. A file begins with a header of
big-endian 32-bit numbers: a magic number, then the sizes. One byte per pixel or label follows.
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

from lab.base.errors import InputError

SHIPPED: Final = Path(__file__).parent / "datasets" / "mnist"
CHECKSUMS: Final = "SHA256SUMS"

SIDE: Final = 28
PIXELS: Final = SIDE * SIDE
CLASSES: Final = 10

# The standard split reserves 5,000 of the 60,000 training images for validation.
VALIDATION_SHARE: Final = 12

# The split needs two items. More than a million items mean a broken header.
_FEWEST_ITEMS: Final = 2
_MOST_ITEMS: Final = 1_000_000
_IMAGES_MAGIC: Final = 0x0803
_LABELS_MAGIC: Final = 0x0801

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int64]


class DataError(InputError):
    """A data file cannot be used."""


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Images with their labels.

    A pixel is one byte, as in the file. As a float32 in [0, 1] it would need four times the memory,
    and most programs need no more than a batch as floats.

    Attributes:
        pixels: Gray values, uint8, shape [n, 784], row by row.
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
        """Return the number of whole batches in one epoch; the remaining images are not used in it.

        Raises:
            DataError: `batch_size` is larger than the number of images.
        """
        if batch_size > len(self):
            raise DataError(
                f"a batch of {batch_size} is larger than the {len(self)} training images",
                f"use --batch_size {len(self)} or less",
            )
        return len(self) // batch_size

    def batches(
        self, batch_size: int, seed: int | Sequence[int], *, part: int = 0, parts: int = 1
    ) -> Iterator[tuple[Floats, Ints]]:
        """Yield batches without end; each epoch has a new random order of all images.

        Workers that go through the data together share the seed, and each takes its own part: in an
        epoch no image is in the batches of two parts. Workers that each go through all of the data
        take seeds of their own, such as `[seed, 1 + task_index]`. The 1 is necessary: for NumPy,
        `[5, 0]` and `5` are the same seed.

        Args:
            batch_size: The number of examples in one batch.
            seed: The seed of the random orders.
            part: This worker's part of each epoch.
            parts: The number of parts. The batches of all parts, joined, are those of one worker
                with `parts` times the batch size.

        Yields:
            Images, float32 in [0, 1], shape [batch_size, 784]; labels, int32, shape [batch_size].

        Raises:
            DataError: A batch of all parts has more images than there are.
        """
        for chosen in self.choices(batch_size, seed, part=part, parts=parts):
            yield scaled(self.pixels[chosen]), self.labels[chosen]

    def choices(
        self, batch_size: int, seed: int | Sequence[int], *, part: int = 0, parts: int = 1
    ) -> Iterator[Indices]:
        """Yield the same batches as `batches`, but as indices of the images.

        Yields:
            Indices of the images in one batch, int64, shape [batch_size].

        Raises:
            DataError: A batch of all parts has more images than there are.
        """
        joined = batch_size * parts
        count = self.batches_per_epoch(joined)
        random = np.random.default_rng(seed)
        while True:
            order = random.permutation(len(self))[: count * joined]
            yield from order.reshape(count, parts, batch_size)[:, part]


@dataclass(frozen=True, slots=True, eq=False)
class Mnist:
    """The three parts of the data set; the shipped one has 55,000, 5,000 and 10,000 examples."""

    train: Examples
    validation: Examples
    test: Examples


def load_mnist(data_dir: Path | None = None) -> Mnist:
    """Read the data set.

    Args:
        data_dir: A directory with your own `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`,
            `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`, each plain or with `.gz`. The
            last twelfth of its training examples is the validation set. With None, the function
            reads the shipped files and checks their SHA-256.

    Returns:
        The images and their labels.

    Raises:
        DataError: A file is missing, unreadable, damaged, or of another kind than its name says.
    """
    joined = _read_examples(data_dir, "train")
    held_back = math.ceil(len(joined) / VALIDATION_SHARE)
    split = len(joined) - held_back
    return Mnist(
        train=Examples(joined.pixels[:split], joined.labels[:split]),
        validation=Examples(joined.pixels[split:], joined.labels[split:]),
        test=_read_examples(data_dir, "t10k"),
    )


def load_test(data_dir: Path | None = None) -> Examples:
    """Read only the test set; arguments and errors are those of `load_mnist`."""
    return _read_examples(data_dir, "t10k")


def train_files(data_dir: Path | None = None) -> tuple[Path, Path]:
    """Return the paths of the training images and labels, for a program that reads them itself.

    Call `load_mnist` first: it checks the files.

    Args:
        data_dir: As for `load_mnist`.

    Returns:
        Two IDX files, gzipped if the name ends in `.gz`. Their headers have 16 and 8 bytes.

    Raises:
        DataError: A file is missing.
    """
    images, labels = (
        _find(data_dir, f"train-{part}-ubyte") for part in ("images-idx3", "labels-idx1")
    )
    return images, labels


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
        raise _error(labels_path, what, "provide one label for each image")
    if digits.max() >= CLASSES:
        raise _error(labels_path, f"has a label {digits.max()}", "use labels from 0 to 9")
    return Examples(pixels.reshape(len(pixels), PIXELS), digits.astype(np.int32))


def scaled(pixels: Bytes) -> Floats:
    """Return pixels as float32 numbers in [0, 1]."""
    return np.divide(pixels, np.float32(255), dtype=np.float32)


def _find(data_dir: Path | None, name: str) -> Path:
    if data_dir is None:
        return SHIPPED / f"{name}.gz"
    for candidate in (data_dir / f"{name}.gz", data_dir / name):
        if candidate.is_file():
            return candidate
    raise _error(data_dir, f"has no file {name}.gz or {name}", "provide all four IDX files")


def _check(path: Path) -> None:
    """Compare a shipped file with its SHA-256."""
    try:
        checksums = (SHIPPED / CHECKSUMS).read_text("ascii").splitlines()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        what = f"{path}: cannot be read ({error.strerror})"
        raise DataError(what, "reinstall lab") from error
    if f"{digest}  {path.name}" not in checksums:
        raise _error(path, "is damaged: its SHA-256 differs from the shipped one", "reinstall lab")


def _read(path: Path, magic: int, shape: tuple[int, ...]) -> Bytes:
    """Read an IDX file whose items have this shape; return an array of shape [n, *shape]."""
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
        raise _error(
            path, f"is not an IDX file of {kind}", "use MNIST's IDX format, gzipped or plain"
        )
    _, count, *size = layout.unpack(header)
    if tuple(size) != shape:
        raise _error(path, f"has images of {size[0]}x{size[1]} pixels", f"use {SIDE}x{SIDE}")
    if not _FEWEST_ITEMS <= count <= _MOST_ITEMS:
        raise _error(path, f"declares {count} items", f"use {_FEWEST_ITEMS} to {_MOST_ITEMS}")
    # One extra byte is enough to detect extra content.
    expected = count * math.prod(shape)
    body = stream.read(expected + 1)
    if len(body) != expected:
        what = "is cut short" if len(body) < expected else "has extra bytes after its last item"
        raise _error(path, what, "fetch the file again")
    return np.frombuffer(body, np.uint8).reshape(count, *shape)


def _error(path: Path, what: str, fix: str) -> DataError:
    return DataError(f"{path}: {what}", fix)
