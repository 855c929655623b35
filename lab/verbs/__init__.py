"""The verbs of `lab`, a module each: `lab run` and `lab.run(...)` are `run` of `run.py`.

A verb may import every room but `cli`, which calls it.
Begin with `ps.py`: a function with its options, a result, and how it is shown.
"""
