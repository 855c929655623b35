"""Where operations run: TensorFlow tells how it has cut a graph into parts, one for each device.

And where it meant them to run: with `log_device_placement` it prints a line for each operation.
"""

import contextlib
import os
import re
import tempfile

import tensorflow.compat.v1 as tf

PLACED = re.compile(r"(\S+): \(\w+\): (/job:\S+)")


def as_written(**options):
    """A session's configuration under which graphs run as they are written.

    TensorFlow would otherwise compute what is constant beforehand, wherever that is quickest, and
    merge operations.
    """
    config = tf.ConfigProto(**options)
    config.graph_options.optimizer_options.opt_level = tf.OptimizerOptions.L0
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def where(session, operations, feed=None):
    """Run these once more; return each one's name with its device, without the replica."""
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
    """Catch the placement log; yields the device of each operation that it names, by its name."""
    placed = {}
    # TensorFlow prints it from C++, so it is caught where the process's output goes.
    before = os.dup(1)
    with tempfile.TemporaryFile("w+b") as caught:
        os.dup2(caught.fileno(), 1)
        try:
            yield placed
        finally:
            os.dup2(before, 1)
            os.close(before)
            caught.seek(0)
            for line in caught.read().decode().splitlines():
                if match := PLACED.fullmatch(line):
                    placed[match[1]] = match[2].replace("/replica:0", "")
                else:
                    print(line)
