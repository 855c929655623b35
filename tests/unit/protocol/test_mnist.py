"""The MNIST loader: the shipped files, a student's own, and every way in which those are wrong."""

from __future__ import annotations

import gzip
import shutil
import struct
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from lab.protocol import mnist as data
from lab.protocol.mnist import CHECKSUMS, SHIPPED, DataError, Examples, load_mnist

NAMES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "t10k": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
Bytes = npt.NDArray[np.uint8]


def idx(items: Bytes) -> bytes:
    header = struct.pack(f">HBB{items.ndim}I", 0, 8, items.ndim, *items.shape)
    return header + items.tobytes()


def digits(count: int, seed: int = 0) -> tuple[Bytes, Bytes]:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 28, 28), np.uint8)
    return images, random.integers(0, 10, count, np.uint8)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    for part, count, pack, ending in (("train", 24, gzip.compress, ".gz"), ("t10k", 6, bytes, "")):
        for name, items in zip(NAMES[part], digits(count), strict=True):
            (tmp_path / f"{name}{ending}").write_bytes(pack(idx(items)))
    return tmp_path


def test_the_shipped_data_are_mnist() -> None:
    mnist = load_mnist()
    assert (len(mnist.train), len(mnist.validation), len(mnist.test)) == (55_000, 5_000, 10_000)
    for part in (mnist.train, mnist.validation, mnist.test):
        assert part.images.dtype == np.float32
        assert part.images.shape == (len(part), 784)
        assert (part.images.min(), part.images.max()) == (0.0, 1.0)
        assert part.labels.dtype == np.int32
        assert part.labels.shape == (len(part),)
    # The first digits, and how often each digit occurs: published numbers.
    assert mnist.train.labels[:5].tolist() == [5, 0, 4, 1, 9]
    assert mnist.test.labels[:5].tolist() == [7, 2, 1, 0, 4]
    ones = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(mnist.test.labels).tolist() == ones
    # The mean brightness of the 60,000 training images, 33.3184 of 255.
    joined = np.concatenate([mnist.train.images, mnist.validation.images])
    assert joined.mean(dtype=np.float64) * 255 == pytest.approx(33.3184, abs=1e-4)


def test_data_gzipped_or_plain(own: Path) -> None:
    mnist = load_mnist(own)
    images, labels = digits(24)
    assert (len(mnist.train), len(mnist.validation), len(mnist.test)) == (22, 2, 6)
    np.testing.assert_array_equal(mnist.train.images * 255, images[:22].reshape(22, 784))
    np.testing.assert_array_equal(mnist.validation.labels, labels[22:])
    np.testing.assert_array_equal(mnist.test.labels, digits(6)[1])


def test_shipped_files_are_compared_with_their_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in SHIPPED.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(data, "SHIPPED", tmp_path)
    load_mnist()
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(labels.read_bytes())
    content[4] ^= 1  # The time stamp in gzip's header: the digits themselves are the same.
    labels.write_bytes(content)
    with pytest.raises(DataError) as error:
        load_mnist()
    message = f"{labels}: is damaged: its SHA-256 differs from the shipped one; reinstall lab"
    assert str(error.value) == message
    (tmp_path / CHECKSUMS).unlink()
    with pytest.raises(DataError, match="cannot be read"):
        load_mnist()


IMAGES, LABELS = NAMES["train"]
GOOD_IMAGES, GOOD_LABELS = (idx(items) for items in digits(24))


CONTENTS = {
    "empty": (IMAGES, b""),
    "half a header": (IMAGES, b"\0\0\x08\x03"),
    "labels as images": (IMAGES, GOOD_LABELS),
    "images as labels": (LABELS, GOOD_IMAGES),
    "no labels": (LABELS, b"{}" * 50),
    "images cut short": (IMAGES, GOOD_IMAGES[:-1]),
    "images and more": (IMAGES, GOOD_IMAGES + b"\0"),
    "labels cut short": (LABELS, GOOD_LABELS[:20]),
    "labels and more": (LABELS, GOOD_LABELS + b"\0"),
    "large images": (IMAGES, idx(np.zeros((24, 32, 32), np.uint8))),
    "no image": (IMAGES, idx(np.zeros((0, 28, 28), np.uint8))),
    "one image": (IMAGES, idx(np.zeros((1, 28, 28), np.uint8))),
    "billions": (IMAGES, struct.pack(">4I", 0x803, 2**32 - 1, 28, 28)),
    "a label too few": (LABELS, idx(digits(23)[1])),
    "a label 10": (LABELS, idx(np.full(24, 10, np.uint8))),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_a_file_with_wrong_content(own: Path, case: str, snapshot: SnapshotAssertion) -> None:
    name, content = CONTENTS[case]
    (own / f"{name}.gz").unlink()
    (own / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        load_mnist(own)
    assert str(error.value).removeprefix(f"{own}/") == snapshot
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-6] + b"\xff" * 6,
        lambda whole: whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
        lambda whole: b"no gzip at all",
        lambda whole: b"",
        # At most one byte after the last image is unpacked, whatever follows.
        lambda whole: gzip.compress(GOOD_IMAGES + bytes(1 << 26), 1),
    ],
)
def test_a_damaged_gzip_file(own: Path, damage: Callable[[bytes], bytes]) -> None:
    path = own / f"{IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError) as error:
        load_mnist(own)
    assert str(error.value).startswith((f"{path}: is ", f"{path}: has extra bytes after its last"))


def test_missing_is_named(own: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_mnist(tmp_path / "nowhere")
    assert str(error.value).startswith(f"{tmp_path / 'nowhere'}: has no file {IMAGES}.gz or ")
    (own / f"{LABELS}.gz").unlink()
    with pytest.raises(DataError) as error:
        load_mnist(own)
    missing = f"{own}: has no file {LABELS}.gz or {LABELS}"
    assert str(error.value) == f"{missing}; provide all four IDX files"
    (own / LABELS).mkdir()
    with pytest.raises(DataError, match="has no file"):
        load_mnist(own)


def examples(count: int) -> Examples:
    pixels = np.zeros((count, 784), np.uint8)
    pixels[:, 0], pixels[:, 1] = np.divmod(np.arange(count), 256)
    return Examples(pixels, np.arange(count, dtype=np.int32))


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_an_epoch_has_every_image_at_most_once(count: int, batch_size: int, seed: int) -> None:
    part = examples(count)
    if batch_size > count:
        with pytest.raises(DataError, match="--batch_size"):
            next(part.batches(batch_size, seed))
        return
    batches = part.batches_per_epoch(batch_size)
    stream = part.batches(batch_size, seed)
    for _ in range(2):
        seen = []
        for images, labels in islice(stream, batches):
            assert images.shape == (batch_size, 784)
            assert images.dtype == np.float32
            # Bit by bit: the float32 in [0, 1] of a byte is always the same.
            np.testing.assert_array_equal(images, part.images[labels])
            np.testing.assert_array_equal(images[:, 1], (labels % 256).astype(np.float32) / 255)
            seen += labels.tolist()
        assert len(set(seen)) == len(seen) == batches * batch_size
        assert count - len(seen) < batch_size


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 4), st.integers(0, 5))
def test_the_parts_of_an_epoch_are_disjoint(count: int, size: int, parts: int, seed: int) -> None:
    part, joined = examples(count), size * parts
    if joined > count:
        with pytest.raises(DataError, match="--batch_size"):
            next(part.choices(size, seed, parts=parts))
        return
    streams = [part.choices(size, seed, part=number, parts=parts) for number in range(parts)]
    alone = part.choices(joined, seed)
    for _ in range(2):
        seen: list[int] = []
        for _ in range(part.batches_per_epoch(joined)):
            own = [next(stream) for stream in streams]
            assert {len(each) for each in own} == {size}
            # Together they are one worker with the joined batch.
            np.testing.assert_array_equal(np.concatenate(own), next(alone))
            seen += [int(number) for each in own for number in each]
        assert len(set(seen)) == len(seen) > count - joined


def order(seed: int | list[int], count: int = 100) -> list[int]:
    return [int(labels[0]) for _, labels in islice(examples(1000).batches(10, seed), count)]


def test_choices_are_the_batches_by_their_images_numbers() -> None:
    part = examples(1000)
    chosen, batches = part.choices(30, [7, 2]), part.batches(30, [7, 2])
    for _ in range(3 * part.batches_per_epoch(30)):  # Into the third epoch's own order.
        indices, (images, labels) = next(chosen), next(batches)
        np.testing.assert_array_equal(part.labels[indices], labels)
        np.testing.assert_array_equal(part.images[indices], images)


def test_orders_are_repeatable_and_differ_between_seeds_workers_and_epochs() -> None:
    one = order([3, 1], 200)
    assert one[:100] == order([3, 1]) != one[100:]
    # Tasks are counted from 1, because NumPy pads a seed with zeros.
    assert order([3, 0]) == order(3)
    assert len({tuple(order(seed)) for seed in ([3, 1], [3, 2], [4, 1], 3)}) == 4
