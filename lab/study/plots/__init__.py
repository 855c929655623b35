"""The figures of one run or of several runs, drawn from `data.Trace`.

A figure is a pure function from runs to matplotlib's `Figure`. `registry.py` has the titles and the
captions.
"""
