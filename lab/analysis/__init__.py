"""Analyses of runs: a comparison, the statistics of a sweep, and curves in TensorBoard."""
