"""Simulate a distributed training by discrete events, also for other hosts than this one.

It is pure arithmetic with SimPy: no TensorFlow, no clock, and no file except the measured costs.
`programs.py` describes a step: the calls between tasks that TensorFlow derives from the training
programs. `all_reduce.py` is the step without parameter servers. `engine.py` simulates the tasks,
cores and links that take time. `training.py` repeats the steps of all workers.
"""

from lab.simulation.model import (
    MEASURED,
    Box,
    Costs,
    Forecast,
    Shape,
    Way,
    least_bytes,
)
from lab.simulation.training import simulate

__all__ = ["MEASURED", "Box", "Costs", "Forecast", "Shape", "Way", "least_bytes", "simulate"]
