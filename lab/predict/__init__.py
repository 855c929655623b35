"""Predictions of the saved model of a run, with NumPy instead of TensorFlow."""
