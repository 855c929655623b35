"""What the client and the tasks share: the run volume, records, experiments, frameworks, links.

It imports only `base`, and only packages that the image has. Begin with `volume/layout.py`, which
names every file of a run, then read `volume/run_spec.py` and `records/`.
"""
