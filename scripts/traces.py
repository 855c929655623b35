"""Where operations run: TensorFlow tells how it has cut a graph into parts, one for each device."""

import tensorflow.compat.v1 as tf


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
