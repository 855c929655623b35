"""The optimizer of printed synchronous programs; with `--listing=mend` its known faults are fixed.

The program printed in 2018 (*Mastering TensorFlow 1.x*, chapter 15) never ends:

1. It calls `local_step_init_op` and `chief_init_op`, which are operations, as if they were
   functions (`lab.task.tf1.known_bugs.uncall_operations` fixes this).
2. Its queue runner waits for gradients forever, so that the chief cannot stop.
3. Each worker counts its own steps, but takes its tokens from one shared queue. A quick worker
   takes two tokens in a round, and ends early. Then the others wait for its gradients forever.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import tensorflow.compat.v1 as tf
from tensorflow.python.training import sync_replicas_optimizer

from lab.task.tf1.known_bugs import NotifyTask


class SyncReplicasOptimizer(tf.train.SyncReplicasOptimizer):  # type: ignore[misc]
    """TensorFlow's optimizer, which also remembers whether the program has made one.

    Attributes:
        was_made: Whether this process has made an optimizer of this class.
    """

    was_made = False

    def __init__(self, *args: Any, replica_id: int | None = None, **kwargs: Any) -> None:
        """Make the optimizer; `replica_id` of 2016 is not needed."""
        del replica_id
        super().__init__(*args, **kwargs)
        SyncReplicasOptimizer.was_made = True


def fixed_optimizer(worker: int, notify: NotifyTask) -> type[SyncReplicasOptimizer]:
    """Return the optimizer class without the second and the third fault.

    Args:
        worker: This task's index among the workers; 0 is the chief.
        notify: Receives one line for each fixed fault.
    """

    class Fixed(SyncReplicasOptimizer):
        """Each worker has its own tokens, so that it adds exactly one gradient to each round."""

        def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            if self._replicas_to_aggregate > self._total_num_replicas:
                # Here a worker must add several gradients to a round, which needs shared tokens.
                return super().apply_gradients(grads_and_vars, *args, **kwargs)
            queues = functools.partial(_Tokens, worker, self._total_num_replicas)
            patched = {**vars(sync_replicas_optimizer.data_flow_ops), "FIFOQueue": queues}
            with patch.object(sync_replicas_optimizer, "data_flow_ops", SimpleNamespace(**patched)):
                step = super().apply_gradients(grads_and_vars, *args, **kwargs)
            notify("fixed: each worker has its own tokens; all workers end after the same round")
            self._chief_queue_runner: Any = _DaemonQueueRunner(
                self.get_chief_queue_runner(), notify
            )
            return step

        def get_init_tokens_op(self, num_tokens: int = -1) -> Any:
            # With an initial token a quick worker would again be one round ahead.
            spare = self._replicas_to_aggregate <= self._total_num_replicas
            return super().get_init_tokens_op(0 if spare else num_tokens)

    return Fixed


class _Tokens:
    """One queue of tokens per worker, instead of one for all workers."""

    def __init__(self, worker: int, workers: int, *args: Any, **kwargs: Any) -> None:
        name = kwargs.pop("name")
        del kwargs["shared_name"]
        self._worker = worker
        self._queues = [
            tf.FIFOQueue(*args, name=f"{name}_{index}", shared_name=f"{name}_{index}", **kwargs)
            for index in range(workers)
        ]

    @property
    def name(self) -> str:
        """The name for the threads that fill the queues."""
        return str(self._queues[0].name)

    def dequeue(self) -> tf.Tensor:
        """Return this worker's next token."""
        return self._queues[self._worker].dequeue()

    def enqueue_many(self, components: Sequence[tf.Tensor]) -> tf.Operation:
        """Add one token for each worker; the chief's is last, because the chief may end then."""
        (tokens,) = components
        enqueued = tf.no_op()
        for queue in reversed(self._queues):
            with tf.control_dependencies([tokens, enqueued]):
                enqueued = queue.enqueue(tokens[0])
        return enqueued

    def close(self, cancel_pending_enqueues: bool = False) -> tf.Operation:
        """Close all queues."""
        return tf.group(*(queue.close(cancel_pending_enqueues) for queue in self._queues))


class _DaemonQueueRunner(tf.train.QueueRunner):  # type: ignore[misc]  # TensorFlow has no types
    """A queue runner whose thread ends with the program; the program does not wait for it."""

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
        """Create the threads without a coordinator."""
        del coord, daemon
        self._notify("fixed: the program does not wait for the queue runner at its end")
        threads: list[Any] = super().create_threads(sess, coord=None, daemon=True, start=start)
        return threads
