"""Which images a training program sees: own data whose images have numbers, and a check of epochs.

A test writes the data, and starts `watching`: a program that changes the framework so that each
batch comes to `note`, and then runs the program of `scripts/`. No line here needs a framework.
"""

from __future__ import annotations

import itertools
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lab.protocol.mnist import CLASSES, SIDE, VALIDATION_SHARE

Batches = list[list[int]]


def write_numbered_images(data_dir: Path, count: int) -> None:
    """Write four IDX files with `count` training images: the first two pixels have the number."""
    data_dir.mkdir()
    with_validation = -(-count * VALIDATION_SHARE // (VALIDATION_SHARE - 1))  # rounded up
    for part, images in (("train", with_validation), ("t10k", CLASSES)):
        numbers = np.arange(images)
        pixels = np.zeros((images, SIDE * SIDE), np.uint8)
        pixels[:, 0], pixels[:, 1] = np.divmod(numbers, 256)
        header = struct.pack(">4I", 0x0803, images, SIDE, SIDE)
        (data_dir / f"{part}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header, labels = struct.pack(">2I", 0x0801, images), (numbers % CLASSES).astype(np.uint8)
        (data_dir / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


def watching(directory: Path, program: Path, change: str) -> Path:
    """Write a program that runs another one, and return its path.

    Args:
        directory: Where it is written; its processes write down there what they see.
        program: The program that it runs. It gets the arguments.
        change: What it does before: code that makes the framework call `seen_images.note(images)`.
    """
    path = directory / "watching.py"
    path.write_text(
        f"import runpy, sys\nfrom tests.support import seen_images\n"
        f"seen_images.noted_in = {str(directory)!r}\n"
        f"sys.path.insert(0, {str(program.parent)!r})\n{change}\n"
        f"runpy.run_path({str(program)!r}, run_name='__main__')\n"
    )
    return path


noted_in = ""
"""Where this process writes down the images; `watching` sets it."""


def note(images: npt.ArrayLike) -> None:
    """Write down the images of one batch, in [0, 1] and of shape [n, 784], for this process."""
    first_two = np.rint(np.asarray(images)[:, :2] * 255).astype(int)
    with Path(noted_in, f"{os.getpid()}.seen").open("a") as file:
        print(*(first_two @ [256, 1]), file=file)


def seen(directory: Path) -> list[Batches]:
    """Return the batches that each process has noted."""
    texts = [path.read_text() for path in sorted(directory.glob("*.seen"))]
    return [[[int(word) for word in line.split()] for line in text.splitlines()] for text in texts]


def assert_each_epoch_is_a_pass(
    workers: Sequence[Batches], images: int, batch_size: int, epochs: int
) -> None:
    """In an epoch no image is used twice, and less than one step's images are left out.

    Args:
        workers: The batches of each worker.
        images: The number of training images.
        batch_size: The images of one worker's batch.
        epochs: The number of epochs. Each has another order.
    """
    joined = len(workers) * batch_size
    steps = images // joined
    passes = []
    for epoch in range(epochs):
        parts = [batches[epoch * steps : (epoch + 1) * steps] for batches in workers]
        used = [number for batches in parts for batch in batches for number in batch]
        assert len(set(used)) == len(used), f"epoch {epoch + 1} uses an image twice"
        assert set(used) <= set(range(images)), "other images than those of the training"
        assert images - len(used) < joined, f"epoch {epoch + 1} leaves out {images - len(used)}"
        passes.append(used)
    assert all(len(batches) == epochs * steps for batches in workers)
    for before, after in itertools.pairwise(passes):
        assert before != after, "two epochs have the same order"
