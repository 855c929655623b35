"""MNIST's training images as a TFRecord file of `tf.train.Example`s, written without TensorFlow.

Each example has the features that multi-tower programs of 2017 read::

    image_raw   bytes   784 bytes, a pixel each, row by row
    label       int64   the digit
    pixels      int64   784
    height      int64   28
    width       int64   28
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from lab.task.sdk.data import PIXELS, SIDE, Examples

# Of protocol buffers: a field's number and type in one byte. Type 2 has its length before it.
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
_CHECKSUM_BYTES: Final = 4
_HEADER_BYTES: Final = 8 + _CHECKSUM_BYTES
"""Bytes of a record before its data: the length and its checksum."""
_BITS: Final = 7
"""Bits of a number in each of its bytes."""

# The CRC-32C of a TFRecord: Castagnoli's polynomial, reflected, and TFRecord's mask.
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8

_Uint32s = npt.NDArray[np.uint32]


def encode_examples(examples: Examples) -> bytes:
    """The file.

    Args:
        examples: n images and their labels.

    Returns:
        n records of the same length, in the order of the examples.
    """
    before, behind = _example_parts()
    return frame_records(
        [
            before + image.tobytes() + behind + bytes([label])
            for image, label in zip(examples.pixels, examples.labels.tolist(), strict=True)
        ]
    )


def is_tfrecords(begin: bytes) -> bool:
    """Whether a file that begins with these bytes was written by `tfrecords`."""
    return begin[_HEADER_BYTES:].startswith(_example_parts()[0])


def frame_records(records: Sequence[bytes]) -> bytes:
    """Records as they stand in a TFRecord file, which a file of TensorBoard's events is, too.

    Args:
        records: Each of 4 bytes at least.

    Returns:
        Of each the length, the length's checksum, the record, and its checksum.
    """
    lengths = [len(record).to_bytes(8, "little") for record in records]
    parts = zip(lengths, _masked_crcs(lengths), records, _masked_crcs(records), strict=True)
    return b"".join(part for record in parts for part in record)


def count_records(file: BinaryIO) -> int:
    """The number of records from a file's position to its end."""
    found = 0
    while head := file.read(_HEADER_BYTES):
        file.seek(int.from_bytes(head[:8], "little") + _CHECKSUM_BYTES, os.SEEK_CUR)
        found += 1
    return found


def _example_parts() -> tuple[bytes, bytes]:
    """What stands in each example before the image, and between it and the label's last byte."""
    pixels = bytes(PIXELS)
    sizes = {"height": SIDE, "width": SIDE, "pixels": PIXELS}
    features = b"".join(_entry(name, _integer(value)) for name, value in sizes.items())
    features += _entry("image_raw", _field(_FIELD_1, _field(_FIELD_1, pixels)))
    features += _entry("label", _integer(0))
    before, _, behind = _field(_FIELD_1, features).partition(pixels)
    return before, behind[:-1]


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


def _masked_crcs(records: Sequence[bytes]) -> list[bytes]:
    """The masked CRC-32C of each record, computed for all of them at once, byte by byte."""
    # A CRC begins with all bits set. To invert the first 32 bits of the data is the same. Then it
    # begins with 0, which zeros before the data do not change: all records get the same length.
    width = max(map(len, records), default=0)
    rows = b"".join(
        (bytes(byte ^ 0xFF for byte in record[:4]) + record[4:]).rjust(width, b"\0")
        for record in records
    )
    table: _Uint32s = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (table & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    crc: _Uint32s = np.zeros(len(records), np.uint32)
    for column in np.frombuffer(rows, np.uint8).reshape(len(records), width).T:
        crc = table[(crc ^ column) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(_MASK)
    return [value.tobytes() for value in masked.astype("<u4")]
