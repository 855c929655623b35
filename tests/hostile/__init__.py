"""Attacks: odd configs, odd arguments, damaged runs, and programs that do harm.

No input causes a traceback, a hang, a wrong success or a lost byte. `make test` runs
small numbers with fixed seeds; `python -m tests.hostile` runs large ones.
"""
