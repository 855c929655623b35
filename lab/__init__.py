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
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from lab.verbs.attach import attach as attach
    from lab.verbs.backends_ import backends_ as backends_
    from lab.verbs.build import build as build
    from lab.verbs.cancel import cancel as cancel
    from lab.verbs.check import check as check
    from lab.verbs.class_ import class_ as class_
    from lab.verbs.compare import compare as compare
    from lab.verbs.completion import completion as completion
    from lab.verbs.data import data as data
    from lab.verbs.doctor import doctor as doctor
    from lab.verbs.down import down as down
    from lab.verbs.experiments import experiments as experiments
    from lab.verbs.export import export as export
    from lab.verbs.fault import fault as fault
    from lab.verbs.gpus import gpus as gpus
    from lab.verbs.import_ import import_ as import_
    from lab.verbs.init import init as init
    from lab.verbs.inputs import Cluster as Cluster
    from lab.verbs.inputs import ConfigError as ConfigError
    from lab.verbs.inputs import InputError as InputError
    from lab.verbs.inputs import LabError as LabError
    from lab.verbs.inputs import Plan as Plan
    from lab.verbs.inputs import load as load
    from lab.verbs.inputs import plan as plan
    from lab.verbs.logs import logs as logs
    from lab.verbs.ps import ps as ps
    from lab.verbs.render import render as render
    from lab.verbs.report import report as report
    from lab.verbs.reproduce import reproduce as reproduce
    from lab.verbs.restore import restore as restore
    from lab.verbs.results import Run as Run
    from lab.verbs.results import Runs as Runs
    from lab.verbs.results import figure as figure
    from lab.verbs.results import find as find
    from lab.verbs.run import run as run
    from lab.verbs.runs import runs as runs
    from lab.verbs.shell import shell as shell
    from lab.verbs.show import show as show
    from lab.verbs.simulate import simulate as simulate
    from lab.verbs.sweep import sweep as sweep
    from lab.verbs.up import up as up
    from lab.verbs.validate import validate as validate

_ELSEWHERE = {
    **dict.fromkeys(("Run", "Runs", "figure", "find"), "results"),
    **dict.fromkeys(("Cluster", "Plan", "load", "plan"), "inputs"),
    **dict.fromkeys(("ConfigError", "InputError", "LabError"), "inputs"),
}
"""The module of a name in `lab.verbs`; a verb is in the module of its name."""


def __dir__() -> list[str]:
    verbs = import_module("lab.verbs")
    return sorted([*map(verbs.python_name, verbs.COMMANDS), *_ELSEWHERE])


def __getattr__(name: str) -> Any:  # noqa: ANN401  (of any verb)
    """Import a verb on its first use: a command loads only what it needs."""
    if name == "__all__":
        return __dir__()
    if name not in __dir__():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_ELSEWHERE.get(name, name)}", "lab.verbs"), name)
