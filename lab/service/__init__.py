"""Classes, and the batches of runs of a sweep and a reproduction.

This package prints nothing. It reports progress and warnings to `lab.log.LOG`.
"""
