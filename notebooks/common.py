"""For all notebooks: working directory, data, sample runs, checks, steps on one clock, a curve."""

from __future__ import annotations

import json
import os
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes

import lab
from lab.protocol.mnist import load_mnist, load_test
from lab.protocol.saved_model import load_model
from lab.study.reproduce.measures import trainings

__all__ = [
    "at_root",
    "check",
    "curve",
    "load_mnist",
    "load_model",
    "load_test",
    "sample",
    "steps_of",
    "trainings",
]

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "notebooks/samples"

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours that colour-blind readers can distinguish (M. Okabe and K. Ito, 2008)."""

MARKS = ("o", "s", "^", "D", "v", "P")

plt.rcParams.update({"figure.figsize": (9, 3.6), "axes.grid": True, "grid.alpha": 0.3})
plt.rcParams["axes.prop_cycle"] = cycler(color=COLOURS)


def at_root() -> None:
    """Change to the repository's directory, so that paths are the same as on the command line."""
    os.chdir(ROOT)


def sample(name: str) -> lab.Run:
    """Return a stored run; `notebooks/samples/index.json` has the command that made it."""
    made = json.loads((SAMPLES / "index.json").read_text())
    if name not in made:
        raise KeyError(f"no sample {name!r}: there are {', '.join(sorted(made))}")
    return lab.find(made[name]["run"], runs_dir=str(SAMPLES))


def check(lesson: str, **found: object) -> None:
    """Show which stages of a lesson are done, as `lab check` does.

    Args:
        lesson: The lesson.
        found: What you found, by question, with `_` for each hyphen. `...` is nothing yet.

    Raises:
        InputError: There is no such lesson or question.
    """
    given = {name.replace("_", "-"): str(each) for name, each in found.items() if each is not ...}
    checked = lab.check(lesson, answer=given)
    checked.show()
    try:
        checked.check()
    except lab.LabError as left:
        print(left)


def steps_of(run: lab.Run) -> pd.DataFrame:
    """Return the step records of a run, ordered by time.

    Returns:
        The rows of `run.steps()`, with a column `seconds`: the time since the first row.
    """
    steps = run.steps().sort_values("time_unix", ignore_index=True)
    return steps.assign(seconds=steps["time_unix"] - steps["time_unix"].min())


def curve(
    axes: Axes, x: pd.Series, y: pd.Series, label: str, number: int = 0, *, over: int = 15
) -> None:
    """Draw the recorded values as faint points, and the mean of `over` neighbours as a line."""
    order = x.argsort()
    x, y = x.iloc[order].astype(float), y.iloc[order].astype(float)
    colour = COLOURS[number % len(COLOURS)]
    axes.plot(x, y, ".", color=colour, alpha=0.15, markersize=3)
    smooth = y.rolling(over, center=True, min_periods=1).mean()
    mark = MARKS[number % len(MARKS)]
    axes.plot(x, smooth, color=colour, label=label, marker=mark, markevery=0.2, markersize=5)
