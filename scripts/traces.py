"""The devices of operations: where they ran, and where TensorFlow placed them.

A session returns the parts of a graph, one for each device, in which operations ran. With
`log_device_placement` TensorFlow prints a line with the placement of each operation.
"""

import contextlib
import ctypes
import os
import re
import tempfile

import tensorflow.compat.v1 as tf

PLACED = re.compile(r"(\S+): \(\w+\): (/job:\S+)")


def as_written(**options):
    """Return a session config that runs graphs without optimization.

    By default TensorFlow computes constant expressions in advance, on any device, and merges
    operations.
    """
    config = tf.ConfigProto(**options)
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def where(session, operations, feed=None):
    """Run operations again; return the device of each by name, without its replica part."""
    told = tf.RunMetadata()
    options = tf.RunOptions(output_partition_graphs=True)
    session.run(operations, feed, options=options, run_metadata=told)
    ran = {
        node.name: node.device.replace("/replica:0", "")
        for part in told.partition_graphs
        for node in part.node
    }
    names = [getattr(operation, "op", operation).name for operation in operations]
    return {name: ran[name] for name in names}


@contextlib.contextmanager
def placement_log():
    """Capture the placement log; yield a dict that receives the device of each operation."""
    placed = {}
    # TensorFlow prints the log from C++, so the process's file descriptor 1 is redirected.
    before = os.dup(1)
    with tempfile.TemporaryFile("w+b") as caught:
        os.dup2(caught.fileno(), 1)
        try:
            yield placed
        finally:
            ctypes.CDLL(None).fflush(None)  # C's own buffer.
            os.dup2(before, 1)
            os.close(before)
            caught.seek(0)
            for line in caught.read().decode().splitlines():
                if match := PLACED.fullmatch(line):
                    placed[match[1]] = match[2].replace("/replica:0", "")
                else:
                    print(line)
