"""The lab from Python, for notebooks and scripts.

    from lab import api as lab

    done = lab.run("async-fast", cluster="clusters/book.yaml", epochs=3)
    print(done.summary.accuracy)
    done.steps().plot.scatter(x="global_step", y="loss")

`run` does the same as `lab run`, and writes the same directory. An error is a `LabError` of one
line. It may name a flag where Python has an argument: `--runs-dir` is `runs_dir=`. Only the tasks
import TensorFlow; this package does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lab.api.archives import export, import_
    from lab.api.environments import down, ps, up
    from lab.api.following import attach, cancel
    from lab.api.inputs import load, plan
    from lab.api.rendering import render
    from lab.api.reports import compare, report
    from lab.api.reproductions import reproduce
    from lab.api.results import Run, Runs, figure, find, runs
    from lab.api.simulations import simulate
    from lab.api.sweeps import sweep
    from lab.api.training import run
    from lab.config import Cluster
    from lab.errors import ConfigError, InputError, LabError
    from lab.placement.plan import Plan

_MODULES: Final = {
    "lab.api.archives": "export import_",
    "lab.api.environments": "down ps up",
    "lab.api.rendering": "render",
    "lab.api.following": "attach cancel",
    "lab.api.inputs": "load plan",
    "lab.api.reports": "compare report",
    "lab.api.reproductions": "reproduce",
    "lab.api.results": "Run Runs figure find runs",
    "lab.api.simulations": "simulate",
    "lab.api.sweeps": "sweep",
    "lab.api.training": "run",
    "lab.config": "Cluster",
    "lab.errors": "ConfigError InputError LabError",
    "lab.placement.plan": "Plan",
}
"""The names of each module, imported on their first use: a command loads only what it needs."""

__all__ = [
    "Cluster",
    "ConfigError",
    "InputError",
    "LabError",
    "Plan",
    "Run",
    "Runs",
    "attach",
    "cancel",
    "compare",
    "down",
    "export",
    "figure",
    "find",
    "import_",
    "load",
    "plan",
    "ps",
    "render",
    "report",
    "reproduce",
    "run",
    "runs",
    "simulate",
    "sweep",
    "up",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
