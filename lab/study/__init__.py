"""What follows from runs: comparisons, sweeps, figures, reports, reproductions, simulations.

It imports `runner` and the rooms below, but neither `teach` nor `checks`. Begin with
`comparison.py`, or with `reproduce/claims.py` for the published results.
"""
