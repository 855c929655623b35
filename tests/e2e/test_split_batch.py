"""A batch that is split among several devices gives the update of the whole batch."""

from __future__ import annotations

import itertools
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lab.task.sdk.data import load_mnist
from lab.task.sdk.model import load_model
from tests import oracle
from tests.support.cluster import cluster
from tests.support.engine import ROOT

pytestmark = pytest.mark.tensorflow

SEED = 7
BATCH = 50  # Four towers get 12, 13, 12 and 13 images.
UPDATES = 24
# Sums of float32 in another order: the difference grows with the number of updates.
assert_close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)

GRADIENTS = """
import numpy as np
import tensorflow.compat.v1 as tf
from types import SimpleNamespace
from mnist_model import MODELS
from split_batch import Towers

tf.disable_eager_execution()
random = np.random.default_rng(0)
for name, count in ((name, count) for name in MODELS for count in (2, 3, 4)):
    with tf.Graph().as_default():
        model = MODELS[name]
        parameters = {key: tf.constant(value) for key, value in model.initial_parameters(3).items()}
        images = tf.constant(random.random((101, 784), np.float32))
        labels = tf.constant(random.integers(0, 10, 101), tf.int32)
        several = Towers(SimpleNamespace(towers=count, batch_size=101))
        one = Towers(SimpleNamespace(towers=1, batch_size=101))
        split = several.compute(model, images, labels, parameters)
        whole = one.compute(model, images, labels, parameters)
        config = tf.ConfigProto(device_count={"CPU": several.cpu_devices})
        trace = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
        told = tf.RunMetadata()
        with tf.Session(config=config) as session:
            found = session.run([split, whole], options=trace, run_metadata=told)
    for of_parts, of_whole in zip(found[0][2], found[1][2], strict=True):
        assert np.abs(of_parts - of_whole).max() < 1e-6 * np.abs(of_whole).max()
    assert np.allclose(found[0][1], found[1][1], rtol=1e-6)
    assert np.allclose(found[0][0], found[1][0], atol=1e-4)
    for index in range(count):
        (device,) = (
            each for each in told.step_stats.dev_stats if each.device.endswith(f"CPU:{index}")
        )
        names = [node.node_name for node in device.node_stats]
        assert any(name.startswith(f"tower_{index}/") for name in names), names
        others = {f"tower_{other}/" for other in range(count)} - {f"tower_{index}/"}
        assert not [name for name in names if name.startswith(tuple(others)) and "Mat" in name]
"""


def test_the_mean_of_the_parts_is_the_gradient_of_the_batch_and_each_device_computes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", GRADIENTS],
        cwd=ROOT / "scripts",
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}", "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("towers", [2, 4])
@pytest.mark.parametrize(
    "program",
    ["mnist_async.py", "mnist_sync.py", "async_unrolled.py", "async_fast.py", "sync_fast.py"],
)
def test_a_split_batch_trains_as_the_oracle_does(tmp_path: Path, program: str, towers: int) -> None:
    batches = oracle.worker_batches(load_mnist().train, SEED, 0, BATCH)
    training = oracle.train(oracle.initial_parameters("softmax", SEED), batches, rate=0.01)
    made_by_oracle = list(itertools.islice(training, UPDATES))
    flags = (f"--global_steps={UPDATES}", f"--seed={SEED}", "--record_every=1")
    split = (f"--batch_size={BATCH}", f"--towers={towers}")
    if "mnist" not in program:
        split = (*split, "--steps_per_call=5")
    with cluster(program, tmp_path, *flags, *split, LAB_RUN_DIR=str(tmp_path / "run")) as made:
        made.start_all()
        made.succeed()
        steps = made.chief.kind("step", "epoch")
        outcome = made.outcome()
    told = [(int(record["global_step"]), record["loss"]) for record in steps]
    assert told
    assert_close([loss for _, loss in told], [made_by_oracle[step - 1].loss for step, _ in told])
    assert outcome["global_step"] == outcome["probe"] == UPDATES
    assert {record.get("staleness", 0) for record in steps} == {0}
    for name, value in load_model(tmp_path / "run" / "model").parameters.items():
        assert_close(value, made_by_oracle[-1].parameters[name])


def test_more_towers_than_images_are_refused(tmp_path: Path) -> None:
    with cluster("mnist_async.py", tmp_path, "--batch_size=3", "--towers=4") as made:
        worker = made.start("worker", 0)
        assert worker.wait() == 1
        message = "a batch of 3 cannot be split among 4 towers; use a larger --batch_size"
        assert message in worker.stderr.read_text().splitlines()[-1]
