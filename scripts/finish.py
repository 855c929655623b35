"""The end of a training: the chief waits until all workers have finished."""

import time

import numpy as np
import tensorflow.compat.v1 as tf

from lab.task.sdk.program import ended_tasks


class Finish:
    """A variable on a parameter server: each worker has an element, and sets it to 1 at its end."""

    def __init__(self, workers, task_index):
        self.workers = workers
        with tf.device("/job:ps/task:0"):
            self.finished = tf.get_variable("finished", initializer=np.zeros(workers, np.int32))
            self.report = tf.scatter_update(self.finished, task_index, 1)

    def wait_for_all(self, session, recorder):
        """Wait until every worker has finished, except workers that have failed."""
        recorder.write("event", message="waits until all workers have finished")
        while not self.all_have_finished(session):
            time.sleep(0.1)

    def all_have_finished(self, session):
        reported, ended = session.run(self.finished), ended_tasks()
        return all(reported[task] or f"worker-{task}" in ended for task in range(self.workers))
