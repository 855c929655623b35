"""The lab from Python: for notebooks and scripts.

    from lab import api as lab

    done = lab.run("async-fast", cluster="clusters/book.yaml", epochs=3)
    done.summary.accuracy
    done.steps().plot.scatter(x="global_step", y="loss")

Everything is what the command line does, in the same words: `run` is `lab run`, a run's directory
is the same, and what is wrong is a `LabError` of one line. TensorFlow is imported by the tasks
alone, never here; pandas when a data frame is asked for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.cluster import Cluster, load_cluster
from lab.errors import DescriptionError, InputError, InterruptError, LabError
from lab.plan import Plan
from lab.run.directory import RunDir, RunInfo
from lab.run.directory import all_runs as _all_runs
from lab.run.directory import find_run as _find_run
from lab.run.directory import runs_dir as _runs_dir
from lab.run.summary import Summary

if TYPE_CHECKING:
    import pandas as pd

    from lab.task.experiments import Experiment

PathLike = str | os.PathLike[str]

__all__ = [
    "Cluster",
    "DescriptionError",
    "InputError",
    "InterruptError",
    "LabError",
    "Plan",
    "Run",
    "find",
    "load",
    "plan",
    "run",
    "runs",
]
