"""The parameters of a run: an experiment's flags among the arguments of its program."""

from __future__ import annotations

import secrets
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any, Final

from lab.task.experiments import Experiment
from lab.task.flags import training_flags

MAX_SEED: Final = 2**31


def with_seed(experiment: Experiment, argv: Sequence[str]) -> tuple[str, ...]:
    """The same words with a seed among them, drawn if none was given, so that it is recorded."""
    if "seed" not in experiment.flags or "seed" in hyperparameters(experiment, argv):
        return tuple(argv)
    return (f"--seed={secrets.randbelow(MAX_SEED)}", *argv)


def defaults(experiment: Experiment) -> dict[str, Any]:
    """What the program takes where nothing is given, as far as it does not depend on the model."""
    parser = training_flags("")
    known = {name: parser.get_default(name) for name in experiment.flags}
    return {name: value for name, value in known.items() if value is not None}


def hyperparameters(experiment: Experiment, argv: Sequence[str]) -> dict[str, Any]:
    """The program's flags among its words, with their values; the last one of a name counts."""
    found: dict[str, Any] = {}
    words = list(argv)
    for position, word in enumerate(words):
        name, equals, raw = word.removeprefix("--").partition("=")
        flag = experiment.flags.get(name)
        if flag is None or not word.startswith("--"):
            continue
        if not equals:
            following = words[position + 1 : position + 2]
            raw = "true" if flag.is_switch or not following else following[0]
        try:
            value = flag.parse(raw)
        except (ValueError, ArgumentTypeError):  # behind `--`, unchecked: the program refuses it
            value = raw
        found[name] = value if isinstance(value, int | float | str | bool) else str(value)
    return found
