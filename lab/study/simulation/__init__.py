"""Simulate a training by discrete events, and estimate the error of the result.

`discrete_events.py` simulates the steps with SimPy. `machine.py` has the costs that were measured
on one machine, and predicts trainings with an error. It also scales these costs to a run.
"""
