"""The second of two workers: it adds tens to the first one's sum. It takes its number by a flag."""

import tensorflow as tf
from adder_parts import CLUSTER, add_often, shared

flags = tf.flags
flags.DEFINE_integer("task_index", None, "number of this worker")


def main(_):
    me = tf.train.Server(CLUSTER, job_name="worker", task_index=flags.FLAGS.task_index)
    both_have, may_add, all_added = shared()
    at_the_end = all_added.enqueue(True)
    there = tf.Session(me.target)
    there.run(may_add.dequeue())
    add_often(there, both_have, 10)
    there.run(at_the_end)
    there.close()
    print("added 100 tens")


if __name__ == "__main__":
    tf.app.run()
