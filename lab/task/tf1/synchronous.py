"""The printed synchronous program: TensorFlow's optimizer, and with `--mend` its faults mended.

As printed in 2018 (*Mastering TensorFlow 1.x*, chapter 15) it does not run to its end:

1. It calls `local_step_init_op` and `chief_init_op`, which are operations, as if they were
   functions (`lab.task.tf1.known_bugs.without_calls`).
2. Its queue runner waits for gradients for ever, so that the chief cannot stop.
3. Each worker counts its own steps, but the tokens that let a worker go on lie in one queue: a
   quick worker takes two in a round, is done early and leaves, and the others wait for gradients
   that nobody sends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import tensorflow.compat.v1 as tf
from tensorflow.python.training import sync_replicas_optimizer

NotifyTask = Callable[[str], None]


class SyncReplicasOptimizer(tf.train.SyncReplicasOptimizer):  # type: ignore[misc]
    """TensorFlow's own, which remembers that a program made one.

    Besides, no step takes or hands in a gradient before all tasks have begun with their parts: so a
    step that one of them refuses has changed nothing (`lab.task.tf1.step_effects`).

    Attributes:
        made: Whether one was made in this process.
    """

    made = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        SyncReplicasOptimizer.made = True

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Build the step behind an operation on each task that has a gradient or a variable."""
        pairs = list(grads_and_vars)
        devices = {each.device for pair in pairs for each in pair if each is not None}
        with tf.control_dependencies([_present(device) for device in sorted(devices)]):
            return super().apply_gradients(pairs, *args, **kwargs)


def _present(device: str) -> Any:
    with tf.device(device):
        return tf.timestamp()


def fixed_optimizer(worker: int, notify: NotifyTask) -> type[SyncReplicasOptimizer]:
    """The optimizer without the second and the third fault.

    Args:
        worker: This task's index among the workers; 0 is the chief.
        notify: Receives one line for each fault that is mended.
    """

    class Fixed(SyncReplicasOptimizer):
        """Every worker has tokens of its own, so that each gives one gradient to each round."""

        def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            if self._replicas_to_aggregate > self._total_num_replicas:
                # A worker gives several gradients to a round here: shared tokens are the point.
                return super().apply_gradients(grads_and_vars, *args, **kwargs)
            queues = functools.partial(_Tokens, worker, self._total_num_replicas)
            theirs = {**vars(sync_replicas_optimizer.data_flow_ops), "FIFOQueue": queues}
            with patch.object(sync_replicas_optimizer, "data_flow_ops", SimpleNamespace(**theirs)):
                step = super().apply_gradients(grads_and_vars, *args, **kwargs)
            notify("mended: each worker has its own tokens, so that all end after the same round")
            self._chief_queue_runner: Any = _RunnerThatEnds(self.get_chief_queue_runner(), notify)
            return step

        def get_init_tokens_op(self, num_tokens: int = -1) -> Any:
            # With a token beforehand a quick worker would be a round ahead again.
            spare = self._replicas_to_aggregate <= self._total_num_replicas
            return super().get_init_tokens_op(0 if spare else num_tokens)

    return Fixed


class _Tokens:
    """A queue of tokens for each worker, in the place of one for all."""

    def __init__(self, worker: int, workers: int, *args: Any, **kwargs: Any) -> None:
        name = kwargs.pop("name")
        del kwargs["shared_name"]
        self._worker = worker
        self._queues = [
            tf.FIFOQueue(*args, name=f"{name}_{each}", shared_name=f"{name}_{each}", **kwargs)
            for each in range(workers)
        ]

    @property
    def name(self) -> str:
        """Of the threads that fill them."""
        return str(self._queues[0].name)

    def dequeue(self) -> tf.Tensor:
        """This worker's next token."""
        return self._queues[self._worker].dequeue()

    def enqueue_many(self, components: Sequence[tf.Tensor]) -> tf.Operation:
        """One token for each worker; the chief's comes last, for it may leave at once."""
        (tokens,) = components
        given = tf.no_op()
        for queue in reversed(self._queues):
            with tf.control_dependencies([tokens, given]):
                given = queue.enqueue(tokens[0])
        return given

    def close(self, cancel_pending_enqueues: bool = False) -> tf.Operation:
        """Close them all."""
        return tf.group(*(each.close(cancel_pending_enqueues) for each in self._queues))


class _RunnerThatEnds(tf.train.QueueRunner):  # type: ignore[misc]  # TensorFlow has no types
    """Nobody waits for its thread, which waits for gradients; it ends with the program."""

    def __init__(self, runner: tf.train.QueueRunner, notify: NotifyTask) -> None:
        super().__init__(
            runner.queue,
            runner.enqueue_ops,
            close_op=runner.close_op,
            cancel_op=runner.cancel_op,
            queue_closed_exception_types=(tf.errors.OutOfRangeError, tf.errors.CancelledError),
        )
        self._notify = notify

    def create_threads(
        self,
        sess: tf.Session,
        coord: tf.train.Coordinator | None = None,
        daemon: bool = False,
        start: bool = False,
    ) -> list[Any]:
        """The same threads, of which no coordinator knows."""
        del coord, daemon
        self._notify("mended: the queue runner ends with the program, which does not wait for it")
        threads: list[Any] = super().create_threads(sess, coord=None, daemon=True, start=start)
        return threads
