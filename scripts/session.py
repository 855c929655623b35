"""A session that runs a step again when TensorFlow refuses it by mistake.

Every task stores the numbers of the last 100,000 requests, and refuses a number that it has seen
before as a repetition. The numbers are random, but in TensorFlow 2.21 they are not random enough.
In a loop of trivial steps on one server about one step in 20,000 was refused. It also happened in
three of six trainings of the book's whole chapter.

The step may run again only if no task has done any part of it. The programs guarantee that with a
roll call: no variable changes before every task has begun its part. A task that refuses its part
does not begin it. Other requests, such as a request for a tensor, can be refused after all parts
have begun. Then part of an update may have been made, so such an error is raised.
"""

import tensorflow.compat.v1 as tf

from lab.task.sdk.refusals import is_false_refusal


class Session(tf.Session):
    """A `tf.Session` that runs refused steps again, and records each refusal as an event."""

    def __init__(self, target, recorder, config=None, graph=None):
        super().__init__(target, graph=graph, config=config)
        self.recorder = recorder

    def run(self, fetches, feed_dict=None, **options):
        """Run a step, as `tf.Session.run` does."""
        while True:
            try:
                return super().run(fetches, feed_dict, **options)
            except (tf.errors.AbortedError, tf.errors.CancelledError) as error:
                # The parts on other tasks are cancelled, and their error may arrive first.
                if not is_false_refusal(str(error)):
                    raise
                self.recorder.write(
                    "event", message="TensorFlow refused a step as a repetition; it runs again"
                )


def roll_call(devices):
    """Return an operation on each device; when all have run, every task has begun its part."""

    def present(device):
        with tf.device(device):
            return tf.timestamp()

    return [present(device) for device in devices]
