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
    from lab.config import Cluster
    from lab.errors import ConfigError, InputError, LabError
    from lab.placement.plan import Plan
    from lab.verbs.attach import attach
    from lab.verbs.cancel import cancel
    from lab.verbs.compare import compare
    from lab.verbs.down import down
    from lab.verbs.export import export
    from lab.verbs.import_ import import_
    from lab.verbs.inputs import load, plan
    from lab.verbs.ps import ps
    from lab.verbs.render import render
    from lab.verbs.report import report
    from lab.verbs.reproduce import reproduce
    from lab.verbs.results import Run, Runs, figure, find
    from lab.verbs.run import run
    from lab.verbs.runs import runs
    from lab.verbs.simulate import simulate
    from lab.verbs.sweep import sweep
    from lab.verbs.up import up

_MODULES: Final = {
    "lab.config": "Cluster",
    "lab.errors": "ConfigError InputError LabError",
    "lab.placement.plan": "Plan",
    "lab.verbs.attach": "attach",
    "lab.verbs.cancel": "cancel",
    "lab.verbs.compare": "compare",
    "lab.verbs.down": "down",
    "lab.verbs.export": "export",
    "lab.verbs.import_": "import_",
    "lab.verbs.inputs": "load plan",
    "lab.verbs.ps": "ps",
    "lab.verbs.render": "render",
    "lab.verbs.report": "report",
    "lab.verbs.reproduce": "reproduce",
    "lab.verbs.results": "Run Runs figure find",
    "lab.verbs.run": "run",
    "lab.verbs.runs": "runs",
    "lab.verbs.simulate": "simulate",
    "lab.verbs.sweep": "sweep",
    "lab.verbs.up": "up",
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
