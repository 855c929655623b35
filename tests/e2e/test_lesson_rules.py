"""The rules of the lessons' figures, compared with TensorFlow."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tools import figures, rules

TRAININGS = {
    "stragglers": rules.Synchronous(figures.STRAGGLERS, 3, apply_ms=2),
    "backup": rules.Synchronous(figures.STRAGGLERS, 2, apply_ms=2),
    "tokens": figures.TOKENS,
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
def test_the_rule_of_tokens_is_tensorflows(training: rules.Synchronous) -> None:
    """Its accumulator and its queue, fed in the same order, hold the same."""
    with tf.Graph().as_default(), tf.Session() as session:
        accumulator = tf.ConditionalAccumulator(tf.float32, shape=[])
        queue = tf.FIFOQueue(-1, [tf.int64], shapes=[[]])
        step, value = tf.placeholder(tf.int64, []), tf.placeholder(tf.float32, [])
        add, take = accumulator.apply_grad(value, step), accumulator.take_grad(training.needed)
        put, get = queue.enqueue_many([tf.fill([3], step)]), queue.dequeue()
        held = [accumulator.num_accumulated(), queue.size()]
        before = 0
        for each in training.moments:
            gradients = len(each.gradients)
            if each.kind == "begin":
                powers = [10.0**worker for worker in each.gradients]
                assert session.run(take) == pytest.approx(np.mean(powers))
                gradients = 0
            elif each.kind == "update":
                session.run(put, {step: each.token})
            elif each.kind == "take":
                assert session.run(get) == each.token
            else:
                session.run(add, {step: each.token, value: 10.0**each.worker})
                assert gradients == before + (each.kind == "add")
            assert session.run(held) == [gradients, len(each.queue)]
            before = gradients


def test_variables_are_placed_as_by_tensorflow() -> None:
    held = rules.round_robin(figures.MLP, 2)
    cluster = tf.train.ClusterSpec({"ps": ["a:1", "b:1"], "worker": ["c:1"]})
    with tf.Graph().as_default(), tf.device(tf.train.replica_device_setter(cluster=cluster)):
        devices = {name: tf.get_variable(name, [1]).device for name in figures.MLP}
        assert tf.add(1, 2).device == "/job:worker"
    assert devices == {
        name: f"/job:ps/task:{index}" for index, names in enumerate(held) for name in names
    }
