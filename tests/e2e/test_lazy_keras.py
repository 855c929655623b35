"""A program of the lab's imports TensorFlow without Keras, and has all of Keras when it uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from lab.task.protocol.lazy_keras import defer_keras
from tests.support.commands import ROOT

pytestmark = pytest.mark.tensorflow

USES = """
import json, os, sys
import tensorflow as tf

at_first = "keras" in sys.modules
import lab.task.sdk.program

model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
with tf.device("CPU"):
    shape = model(tf.ones((3, 5))).shape
left = [name for name in os.environ if "KERAS" in name]
print(json.dumps([at_first, tf.keras.__version__, list(shape), left]))
"""


def test_keras_is_imported_when_it_is_used_and_not_before() -> None:
    kept = {name: value for name, value in os.environ.items() if "KERAS" not in name}
    output = subprocess.run(
        [sys.executable, "-c", USES],
        env={**kept, **defer_keras(kept), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    at_first, version, shape, left = json.loads(output.stdout.splitlines()[-1])
    assert not at_first
    assert version.startswith("3.")
    assert (shape, left) == ([3, 2], [])
    assert "TF_USE_LEGACY_KERAS" not in output.stderr
