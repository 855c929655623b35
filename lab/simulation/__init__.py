"""A distributed training, simulated by discrete events, also for a host that is not at hand.

Pure arithmetic with SimPy: no TensorFlow, no clock, no file but that of the measured costs.
`programs.py` describes a step: the calls between tasks that TensorFlow makes of the training
programs. `all_reduce.py` is the step without parameter servers. `engine.py` has the tasks, cores
and links that take time. `training.py` lets workers make step after step.
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
