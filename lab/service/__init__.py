"""What the commands and the Python API do: plan, boot, run, sweep, reproduce, simulate, predict.

This package prints nothing. It passes progress and warnings to a callback (`Notify`) of the caller.
"""
