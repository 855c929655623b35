"""A session that runs a step again when TensorFlow refuses it by mistake.

Every task keeps the numbers of the last 100,000 requests that it was sent, and refuses a number
that it has seen: it takes the request for a repetition. The numbers are random, but in TensorFlow
2.21 not random enough: in a loop of trivial steps on one server about one step in 20,000 was
refused, and of six trainings of the book's whole chapter three met with it.

To run the step again is right only if no part of it was done, on whichever task. The programs see
to that with a roll call: nothing is changed before every task has begun with its part. A task that
refuses its part does not begin with it. Other requests can be refused when all parts have begun,
that for a tensor for example, and part of an update may be made then: such an error is raised.
"""

import tensorflow.compat.v1 as tf

from lab.task.sdk.refusals import is_false_refusal


class Session(tf.Session):
    """`tf.Session`, but for that; every refusal is told as an event."""

    def __init__(self, target, recorder, config=None, graph=None):
        super().__init__(target, graph=graph, config=config)
        self.recorder = recorder

    def run(self, fetches, feed_dict=None, **options):
        """Run a step, as `tf.Session.run` does."""
        while True:
            try:
                return super().run(fetches, feed_dict, **options)
            except (tf.errors.AbortedError, tf.errors.CancelledError) as error:
                # Cancelled are the parts on other tasks, and their error may come first.
                if not is_false_refusal(str(error)):
                    raise
                self.recorder.write(
                    "event", message="TensorFlow took a step for a repetition; it runs again"
                )


def roll_call(devices):
    """Return one operation on each device, all of which have run once every part has begun."""

    def present(device):
        with tf.device(device):
            return tf.timestamp()

    return [present(device) for device in devices]
