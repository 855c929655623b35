"""The checks of `lab doctor` for this host; each backend brings its own.

It imports `backends` and the rooms below. Begin with `report.py`, which runs all of them.
"""
