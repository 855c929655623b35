"""One host as a pseudo-cluster for learning and teaching distributed training."""

__version__ = "0.2.0"
