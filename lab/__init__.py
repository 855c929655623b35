"""One GPU host as a pseudo-cluster for learning and reproducing distributed TensorFlow."""

__version__ = "0.2.0"
