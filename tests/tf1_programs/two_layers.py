"""A network with one hidden layer; the program beside it imports this module."""

import tensorflow as tf

HIDDEN = 500


def dense(name, inputs, width, penalty, activation=tf.identity):
    """One layer: a matrix drawn from a narrow normal, and zeros added."""
    drawn = tf.truncated_normal_initializer(stddev=0.1)
    with tf.variable_scope(name):
        matrix = tf.get_variable(
            "matrix", (inputs.shape[1], width), initializer=drawn, regularizer=penalty
        )
        zeros = tf.get_variable("added", (width,), initializer=tf.zeros_initializer())
        tf.summary.histogram("entries", matrix)
    return activation(tf.nn.bias_add(tf.matmul(inputs, matrix), zeros))


def digit_scores(pixels, penalty=None):
    """Ten scores for each row of 784 pixels; penalties go to the collection of losses."""
    hidden = dense("hidden", pixels, HIDDEN, penalty, tf.nn.relu)
    return dense("scores", hidden, 10, penalty)
