"""One host as a pseudo-cluster for learning and teaching distributed training.

    import lab

    done = lab.run("async-fast", cluster="clusters/book.yaml", epochs=3)
    print(done.summary.accuracy)
    done.steps().plot.scatter(x="global_step", y="loss")

Each command is a function, which does the same: `lab.run` writes the same directory as `lab run`.
An error is a `LabError` of one line. It may name a flag where Python has an argument: `--runs-dir`
is `runs_dir=`. Only the tasks import TensorFlow; this package does not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from lab.verbs.attach import attach
    from lab.verbs.backends_ import backends_
    from lab.verbs.build import build
    from lab.verbs.cancel import cancel
    from lab.verbs.check import check
    from lab.verbs.class_ import class_
    from lab.verbs.compare import compare
    from lab.verbs.completion import completion
    from lab.verbs.data import data
    from lab.verbs.doctor import doctor
    from lab.verbs.down import down
    from lab.verbs.experiments import experiments
    from lab.verbs.export import export
    from lab.verbs.fault import fault
    from lab.verbs.gpus import gpus
    from lab.verbs.import_ import import_
    from lab.verbs.init import init
    from lab.verbs.inputs import Cluster, ConfigError, InputError, LabError, Plan, load, plan
    from lab.verbs.logs import logs
    from lab.verbs.ps import ps
    from lab.verbs.render import render
    from lab.verbs.report import report
    from lab.verbs.reproduce import reproduce
    from lab.verbs.restore import restore
    from lab.verbs.results import Run, Runs, figure, find
    from lab.verbs.run import run
    from lab.verbs.runs import runs
    from lab.verbs.shell import shell
    from lab.verbs.show import show
    from lab.verbs.simulate import simulate
    from lab.verbs.sweep import sweep
    from lab.verbs.up import up
    from lab.verbs.validate import validate

_ELSEWHERE = {
    **dict.fromkeys(("Run", "Runs", "figure", "find"), "results"),
    **dict.fromkeys(("Cluster", "Plan", "load", "plan"), "inputs"),
    **dict.fromkeys(("ConfigError", "InputError", "LabError"), "inputs"),
}
"""The module of a name in `lab.verbs`; a verb is in the module of its name."""

__all__ = [
    "Cluster",
    "ConfigError",
    "InputError",
    "LabError",
    "Plan",
    "Run",
    "Runs",
    "attach",
    "backends_",
    "build",
    "cancel",
    "check",
    "class_",
    "compare",
    "completion",
    "data",
    "doctor",
    "down",
    "experiments",
    "export",
    "fault",
    "figure",
    "find",
    "gpus",
    "import_",
    "init",
    "load",
    "logs",
    "plan",
    "ps",
    "render",
    "report",
    "reproduce",
    "restore",
    "run",
    "runs",
    "shell",
    "show",
    "simulate",
    "sweep",
    "up",
    "validate",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    """Import a verb on its first use: a command loads only what it needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ELSEWHERE.get(name, name)}", "lab.verbs"), name)
