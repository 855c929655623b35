"""The code that runs in the tasks, in containers or as plain processes.

This package imports nothing of `lab` except itself and `lab.records`: the image contains no other
part of `lab`.
"""
