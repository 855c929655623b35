"""Where tasks run: containers, processes, Slurm and Kubernetes, each in a package of its own.

It imports the rooms from `cluster` down. Begin with `base.py`, which says what a backend and an
environment can do, then read `local/`, the shortest one.
"""
