"""Simulate a distributed training by discrete events, and know the error of the result.

`model.py` has the training, the host and the costs of a step. `engine.py` simulates the steps with
SimPy. `calibration.py` reads a run, and scales the costs to its machine. `validation.py` looks up
the error that the validation measured. `forecasts.py` has the predictions of one command.
"""
