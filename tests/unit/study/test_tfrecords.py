"""TFRecord files that are written without TensorFlow."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from tensorboard.summary.writer.record_writer import RecordWriter

from lab.cli import main
from lab.protocol.mnist import Examples, load_mnist
from lab.study.tfrecords import encode_examples, frame_records


def entry(name: str, feature: bytes) -> bytes:
    """One feature of an example, as protocol buffers write a map; everything is short."""
    content = bytes([0x0A, len(name)]) + name.encode() + b"\x12" + sized(feature)
    return b"\x0a" + sized(content)


def sized(content: bytes) -> bytes:
    size = len(content)
    return (bytes([size]) if size < 128 else bytes([0x80 | size & 0x7F, size >> 7])) + content


def test_the_file_is_what_tensorboard_frames_of_the_same_examples() -> None:
    images = np.random.default_rng(3).integers(0, 256, (5, 784), dtype=np.uint8)
    examples = Examples(images, np.array([7, 0, 9, 1, 1], np.int32))
    expected = io.BytesIO()
    for image, label in zip(images, examples.labels, strict=True):
        features = [
            entry("height", b"\x1a\x03\x0a\x01\x1c"),
            entry("width", b"\x1a\x03\x0a\x01\x1c"),
            entry("pixels", b"\x1a\x04\x0a\x02\x90\x06"),
            entry("image_raw", b"\x0a" + sized(b"\x0a" + sized(image.tobytes()))),
            entry("label", bytes([0x1A, 3, 0x0A, 1, label])),
        ]
        RecordWriter(expected).write(b"\x0a" + sized(b"".join(features)))
    assert encode_examples(examples) == expected.getvalue()


def test_records_of_any_length_are_framed_as_tensorboard_does() -> None:
    rng = np.random.default_rng(5)
    records = [rng.bytes(length) for length in (4, 5, 8, 9, 127, 3000, 4)] + [bytes(20)]
    expected = io.BytesIO()
    for record in records:
        RecordWriter(expected).write(record)
    assert frame_records(records) == expected.getvalue()
    assert frame_records([]) == b""


def test_the_command_writes_the_training_images_and_replaces_only_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["data", "tfrecords"]) == 0
    written = Path("output.tfrecords").read_bytes()
    assert written == encode_examples(load_mnist().train)
    assert "wrote output.tfrecords: 55,000 examples, 47 MiB" in capsys.readouterr().err
    os.truncate("output.tfrecords", 5000)
    assert main(["data", "tfrecords"]) == 0
    assert Path("output.tfrecords").read_bytes() == written
    Path("mine.tfrecords").write_bytes(b"image_raw, and not of this command")
    assert main(["data", "tfrecords", "mine.tfrecords"]) == 2
    assert "mine.tfrecords exists, and lab did not write it" in capsys.readouterr().err
    assert main(["data", "csv"]) == 2
    assert "kind: 'csv' is not tfrecords" in capsys.readouterr().err
    assert main(["data", "tfrecords", "no/such.tfrecords"]) == 2
    capsys.readouterr()
    assert main(["data", "tfrecords", "--data_dir", "."]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no file train-images-idx3-ubyte.gz or train-images-idx3-ubyte; provide all" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine.tfrecords",
        "output.tfrecords",
    ]
