"""Write MNIST's training images as a TFRecord file of `tf.train.Example`s, without TensorFlow.

Each example has the features that programs of 2017 with several towers read::

    image_raw   bytes   784 bytes, one for each pixel, row by row
    label       int64   the digit
    pixels      int64   784
    height      int64   28
    width       int64   28
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from lab.protocol.mnist import PIXELS, SIDE, Examples

# Protocol buffers: the number and type of a field in one byte. A field of type 2 has a length.
_FIELD_1, _FIELD_2, _FIELD_3 = 0x0A, 0x12, 0x1A
_HEADER_BYTES: Final = 8 + 4
"""Bytes of a record before its data: the length and its checksum."""
_BITS: Final = 7
"""The bits of a number in each byte of a varint."""

# The CRC-32C of a TFRecord: Castagnoli's polynomial, reflected, and TFRecord's mask.
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8

_Uint32s = npt.NDArray[np.uint32]


def encode_examples(examples: Examples) -> bytes:
    """Return the content of the TFRecord file.

    Args:
        examples: n images and their labels.

    Returns:
        n records of the same length, in the order of the examples.
    """
    before, after = _example_parts()
    return frame_records(
        [
            before + image.tobytes() + after + bytes([label])
            for image, label in zip(examples.pixels, examples.labels.tolist(), strict=True)
        ]
    )


def is_tfrecords(begin: bytes) -> bool:
    """Whether `encode_examples` wrote a file that begins with these bytes."""
    return begin[_HEADER_BYTES:].startswith(_example_parts()[0])


def frame_records(records: Sequence[bytes]) -> bytes:
    """Return records with the framing of a TFRecord file; TensorBoard's event files have it, too.

    Args:
        records: The records, each of at least 4 bytes.

    Returns:
        For each record its length, the checksum of the length, the record, and its checksum.
    """
    lengths = [len(record).to_bytes(8, "little") for record in records]
    parts = zip(lengths, _masked_crcs(lengths), records, _masked_crcs(records), strict=True)
    return b"".join(part for record in parts for part in record)


def _example_parts() -> tuple[bytes, bytes]:
    """Return the bytes of an example before the image, and from there to the label's last byte."""
    pixels = bytes(PIXELS)
    sizes = {"height": SIDE, "width": SIDE, "pixels": PIXELS}
    features = b"".join(_entry(name, _integer(value)) for name, value in sizes.items())
    features += _entry("image_raw", _field(_FIELD_1, _field(_FIELD_1, pixels)))
    features += _entry("label", _integer(0))
    before, _, after = _field(_FIELD_1, features).partition(pixels)
    return before, after[:-1]


def _entry(name: str, feature: bytes) -> bytes:
    """Encode a feature and its name as an entry of the map in `Features`."""
    return _field(_FIELD_1, _field(_FIELD_1, name.encode()) + _field(_FIELD_2, feature))


def _integer(value: int) -> bytes:
    """Encode a feature with one whole number."""
    return _field(_FIELD_3, _field(_FIELD_1, _varint(value)))


def _field(key: int, content: bytes) -> bytes:
    return bytes([key]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Encode a non-negative whole number as a varint: seven bits a byte, the lowest first."""
    low, rest = value & 0x7F, value >> _BITS
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _masked_crcs(records: Sequence[bytes]) -> list[bytes]:
    """Return the masked CRC-32C of each record, computed for all records in parallel."""
    # A CRC begins with all bits set. Inverting the first 32 bits of the data has the same effect,
    # and the CRC then begins with 0. Leading zeros do not change it, so that all records can be
    # padded to the same length.
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
