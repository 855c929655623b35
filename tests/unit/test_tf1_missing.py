"""The last line of a real program that is missing, or misses its data file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import environ

QUEUES = """\
import tensorflow as tf
_, text = tf.TFRecordReader().read(tf.train.string_input_producer(["no.tfrecords"]))
batch = tf.train.batch([text], 3)
with tf.Session() as session:
    tf.train.start_queue_runners(session{coordinator})
    session.run(batch)
"""
NO_FILE = (
    "MissingFileError: no.tfrecords is missing; in the directory of queues.py, run `lab data"
    " tfrecords no.tfrecords`"
)
NO_PROGRAM = "error: {}/gone.py cannot be read (No such file or directory); check the path"


@pytest.mark.parametrize(
    ("program", "coordinator", "last"),
    [
        # Without a coordinator, the main thread would wait for the queue for ever.
        pytest.param("queues.py", "", NO_FILE, marks=pytest.mark.tensorflow),
        pytest.param(
            "queues.py", ", tf.train.Coordinator()", NO_FILE, marks=pytest.mark.tensorflow
        ),
        ("gone.py", "", NO_PROGRAM),
    ],
)
def test_the_last_line_of_a_program_that_lacks_a_file(
    tmp_path: Path, program: str, coordinator: str, last: str
) -> None:
    (tmp_path / "queues.py").write_text(QUEUES.format(coordinator=coordinator))
    done = subprocess.run(
        [sys.executable, "-m", "lab.task.tf1", program],
        cwd=tmp_path,
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, last.format(tmp_path))
