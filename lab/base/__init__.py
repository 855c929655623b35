"""Errors, text, units, options and the console: what every room uses, and nothing about training.

It imports only the standard library and small packages, and no other room of `lab`.
Begin with `options.py`: how a function declares its options for Python and the command line.
"""
