"""Many small trainings, each with one fault from outside, and the result of each.

    python -m tests.torture --runs 20                      twenty runs, on both backends
    python -m tests.torture --backend local --faults kill,freeze --minutes 30
    python -m tests.torture --seed 17                      one run again
    python -m tests.torture --again                        those that went wrong, once more
    python -m tests.torture --clean-end                    how synchronous trainings end

The seed draws the run: its cluster, its fault, the moment. The fault comes from outside, by
signals, the engine and the kernel, so that the check of lab does not use lab. The results
are in `build/torture.jsonl`, a run a line.
"""
