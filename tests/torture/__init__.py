"""Many small trainings, each with one fault from outside, and a judgement of each.

    python -m tests.torture --runs 20                      twenty runs, on both backends
    python -m tests.torture --backend local --faults kill freeze
    python -m tests.torture --seed 10017                   one run again

The seed draws the run: its cluster, its policy, its fault, the moment. The fault comes from
outside, by signals, the engine and the kernel, so that the check of lab does not use lab. After
each run it is checked that it ended, in time; that state, exit code and cause are those of
docs/reference/endings.md; that each update was counted once; that no record is missing and none
came twice; that no process, container, network, volume, directory or mount is left.
"""
