"""What the commands and the Python API do: plan, boot, run, sweep, reproduce, simulate, predict.

Nothing here prints. Progress and warnings go to a callback (`Say`) that the caller gives.
"""
