"""What runs beside the training programs: in a container, or as a plain process.

Nothing here imports anything of `lab` outside this package and `lab.records`, because that is
all of `lab` that the image holds.
"""
