"""Attacks: odd configs, odd arguments, damaged runs, and programs that do harm.

No input causes a traceback, a hang, a wrong success or a lost byte. `make test` runs small numbers
with fixed seeds. For large ones:

    LAB_ATTACKS=50 python -m pytest tests/hostile/test_attacks.py --numprocesses auto
"""
