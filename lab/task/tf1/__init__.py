"""TensorFlow 1's API for programs printed in 2017 and 2018, which run unchanged."""
