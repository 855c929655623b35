"""One run from the request to the summary, and the run store where it is kept.

It imports `backends` and the rooms below. Begin with `runner.py`, which boots, submits, follows and
removes; `store/directory.py` has the files of a run.
"""
