"""TensorFlow as it was printed in 2017 and 2018, for programs that are run unchanged."""
