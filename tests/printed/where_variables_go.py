"""Three ways of spreading ten variables over two parameter servers; no server is needed to see it."""
import tensorflow as tf
from tensorflow.contrib.training import RandomStrategy

cluster = tf.train.ClusterSpec({"ps": ["ps0:2222", "ps1:2222"], "worker": ["worker0:2222"]})
strategies = [
    ("in turn", None),
    ("random", RandomStrategy(2, seed=7)),
    ("greedy", tf.contrib.training.GreedyLoadBalancingStrategy(
        2, tf.contrib.training.byte_size_load_fn))]

for name, strategy in strategies:
    tf.reset_default_graph()
    with tf.device(tf.train.replica_device_setter(cluster=cluster, ps_strategy=strategy)):
        for layer in range(1, 6):
            with tf.variable_scope("layer%d" % layer):
                tf.get_variable("weights", [100 * layer, 100],
                                initializer=tf.contrib.layers.xavier_initializer())
                tf.get_variable("biases", [100], initializer=tf.zeros_initializer())
    for variable in tf.global_variables():
        print("%s: %s is on %s" % (name, variable.op.name, variable.device))
