"""`lab render`.

Examples:
    # with the GPUs of this host
    lab render
    # from another config, printed to stdout
    lab render clusters/book.yaml --output -
    # print a diff and exit with code 1 if the file is out of date
    lab render --check
    # on Engine 28 or later: tasks cannot reach this host
    lab render -o network=isolated
    # a batch script for Slurm, cluster.sbatch
    lab render clusters/slurm.yaml --target slurm -o time=2h
    # objects for Kubernetes, cluster.k8s.yaml: a JobSet
    lab render clusters/slurm.yaml --target kubernetes -o image=registry.example/lab:cuda
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from lab.api.rendering import Rendered, render
from lab.base.options import presents
from lab.errors import LabError
from lab.log import LOG


@presents(render)
def command(rendered: Callable[[], Rendered]) -> None:
    """Render the config as a compose file, or as a file for Slurm or Kubernetes."""
    made = rendered()
    if made.diff:
        sys.stdout.write(made.diff)
        raise LabError(f"{made.output} is out of date", f"write it again with `{made.again}`")
    if made.again:
        LOG.info(f"{made.output} is up to date")
    elif made.output == "-":
        sys.stdout.write(made.text)
    else:
        trains = f"; it trains {made.run.arguments[0]}" if made.run else ""
        LOG.info(f"wrote {made.output}; {made.planner.start_hint(Path(made.output))}{trains}")
