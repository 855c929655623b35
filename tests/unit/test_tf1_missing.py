"""A data file that a printed program does not find is named in its last line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.task.tf1.missing import missing_file_line
from tests.support.commands import environ


class NotFoundError(Exception):
    """Named as TensorFlow's."""


class OutOfRangeError(Exception):
    """Named as TensorFlow's."""


EMPTY = "RandomShuffleQueue '_1_batch' is closed and has insufficient elements (requested 3)"
MAKE = "make it beside main.py with `lab data tfrecords"


@pytest.mark.parametrize(
    ("error", "noted", "line"),
    [
        (FileNotFoundError(2, "No", "x.csv"), [], "x.csv is missing; put it beside main.py, and"),
        (FileNotFoundError(2, "No", "/x/y.csv"), [], "/x/y.csv is missing; put it there"),
        (NotFoundError("in/a.tfrecord; No such file or directory\n"), [], MAKE),
        (OutOfRangeError(EMPTY), ["a b.tfrecords"], f"{MAKE} 'a b.tfrecords'`"),
        (OutOfRangeError(EMPTY), ["gone.csv", "there.csv"], "gone.csv is missing"),
        (OutOfRangeError(EMPTY), [], None),
        (OutOfRangeError("End of sequence"), ["a.tfrecords"], None),
        (NotFoundError("Key weights not found in checkpoint"), ["a.tfrecords"], None),
        (NotFoundError("there.csv; No such file or directory"), [], None),
        (FileNotFoundError("without a name"), [], None),
        (FileNotFoundError(2, "No", 5), [], None),
        (ValueError("x; No such file or directory"), ["x"], None),
        (
            NotFoundError("W0000 1:2 a.cc:1] NOT_FOUND: in/a.tfrecord; No such file or directory"),
            [],
            MAKE,
        ),
        # The parts of a checkpoint are TensorFlow's own.
        (NotFoundError("train/model.ckpt-0_temp; No such file or directory"), [], None),
    ],
)
def test_the_line_for_a_missing_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    noted: list[str],
    line: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.csv").touch()
    found = missing_file_line(error, noted, "main.py")
    if line is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith("MissingFileError: ")
        assert line in found


QUEUES = """\
import tensorflow as tf
_, text = tf.TFRecordReader().read(tf.train.string_input_producer(["no.tfrecords"]))
batch = tf.train.batch([text], 3)
with tf.Session() as session:
    tf.train.start_queue_runners(session{coordinator})
    session.run(batch)
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("coordinator", ["", ", tf.train.Coordinator()"])
def test_a_queue_runner_that_misses_its_file_ends_the_program(
    tmp_path: Path, coordinator: str
) -> None:
    # Without a coordinator, the main thread waits for the queue for ever.
    (tmp_path / "queues.py").write_text(QUEUES.format(coordinator=coordinator))
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", "queues.py"],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "MissingFileError: no.tfrecords is missing; make it beside queues.py with `lab data"
        " tfrecords no.tfrecords`"
    )


def test_a_missing_program_started_by_hand(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", "gone.py"],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    wanted = f"error: {tmp_path}/gone.py cannot be read (No such file or directory); check the path"
    assert (done.returncode, done.stderr.splitlines()) == (1, [wanted])
