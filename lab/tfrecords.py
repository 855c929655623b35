"""MNIST's training images as a TFRecord file of `tf.train.Example`s, written without TensorFlow.

Each example has the features that multi-tower programs of 2017 read::

    image_raw   bytes   784 bytes, a pixel each, row by row
    label       int64   the digit
    pixels      int64   784
    height      int64   28
    width       int64   28
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lab.task.data import PIXELS, SIDE, Bytes, Examples

# Of protocol buffers: a field's number and type in one byte. Type 2 has its length before it.
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
_HEAD: Final = 12
"""Bytes of a record before its data: the length and its checksum."""
_BITS: Final = 7
"""Of a number in each of its bytes."""

# The CRC-32C of a TFRecord: Castagnoli's polynomial, reflected, and TFRecord's mask.
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8

_Words = npt.NDArray[np.uint32]


def tfrecords(examples: Examples) -> bytes:
    """The file.

    Args:
        examples: n images and their labels.

    Returns:
        n records of the same length, in the order of the examples.
    """
    count = len(examples)
    # All records are the same but for the image and the label, so that they make one matrix.
    before, behind = _around()
    rows = np.concatenate(
        [
            np.tile(before, (count, 1)),
            examples.pixels,
            np.tile(behind, (count, 1)),
            examples.labels.astype(np.uint8)[:, None],
        ],
        axis=1,
    )
    length = np.frombuffer(rows.shape[1].to_bytes(8, "little"), np.uint8)[None]
    head = np.concatenate([length, _masked_crc(length)], axis=1)
    framed = [np.tile(head, (count, 1)), rows, _masked_crc(rows)]
    return np.concatenate(framed, axis=1).tobytes()


def is_ours(begin: bytes) -> bool:
    """Whether a file that begins with these bytes was written by `tfrecords`."""
    before = _around()[0].tobytes()
    return begin[_HEAD:].startswith(before)


def _around() -> tuple[Bytes, Bytes]:
    """What stands in each example before the image, and between it and the label's last byte."""
    sizes = {"height": SIDE, "width": SIDE, "pixels": PIXELS}
    fixed = b"".join(_entry(name, _integer(value)) for name, value in sizes.items())
    image = _entry("image_raw", _field(_FIELD_1, _field(_FIELD_1, bytes(PIXELS))))
    label = _entry("label", _integer(0))
    whole = _field(_FIELD_1, fixed + image + label)
    end = len(whole) - len(label)
    parts = whole[: end - PIXELS], whole[end:-1]
    before, behind = (np.frombuffer(part, np.uint8) for part in parts)
    return before, behind


def _entry(name: str, feature: bytes) -> bytes:
    """A feature and its name, of `Features`: an entry of a map."""
    return _field(_FIELD_1, _field(_FIELD_1, name.encode()) + _field(_FIELD_2, feature))


def _integer(value: int) -> bytes:
    """A feature with one whole number."""
    return _field(_FIELD_3, _field(_FIELD_1, _varint(value)))


def _field(key: int, content: bytes) -> bytes:
    return bytes([key]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """A whole number that is not negative, seven bits a byte, the lowest first."""
    low, rest = value & 0x7F, value >> _BITS
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _masked_crc(rows: Bytes) -> Bytes:
    """The masked CRC-32C of each row: uint8 of shape [n, 4] for one of shape [n, length]."""
    table: _Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    crc: _Words = np.full(len(rows), 0xFFFFFFFF, np.uint32)
    for column in rows.T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)
    return masked.astype("<u4").view(np.uint8).reshape(-1, 4)
