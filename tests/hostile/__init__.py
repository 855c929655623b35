"""Attacks: odd configs, odd arguments, damaged runs, and programs that do harm.

No input causes a traceback, a hang, a wrong success or a lost byte. `make test` runs small numbers
with fixed seeds. For large ones:

    python -m tests.hostile                       all of them (20 minutes)
    python -m tests.hostile configs --inputs 1000 [--first 0]

Exit code 1: something is wrong; `--first SEED --inputs 1` repeats an input.
"""
