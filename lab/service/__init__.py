"""What the commands and the Python API do: plan, boot, run, sweep, reproduce, simulate, predict.

This package prints nothing. It reports progress and warnings to `lab.log.LOG`.
"""
