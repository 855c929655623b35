"""The groups of long tests. A landing runs a group only if its inputs changed since it passed.

`group.py` has the groups, `inputs.py` what each depends on, `records.py` which inputs passed.
Every test in no group is part of each landing.
"""
