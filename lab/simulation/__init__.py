"""A distributed training, simulated by discrete events: what it would do on a box not at hand.

Pure arithmetic with SimPy: no TensorFlow, no clock, no file but that of the measured costs. What a
step consists of is `programs.py` (the calls between tasks that TensorFlow makes of the training
programs), where its time goes is `world.py` (tasks, cores and links that serve in order of
arrival), and `training.py` lets workers go from step to step. Costs come from measurements
(`costs.py`).
"""

from lab.simulation.costs import MEASURED, Costs
from lab.simulation.model import Box, Forecast, Shape, Way, least_bytes
from lab.simulation.training import simulate

__all__ = ["MEASURED", "Box", "Costs", "Forecast", "Shape", "Way", "least_bytes", "simulate"]
