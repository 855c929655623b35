"""The notebooks' shared code: samples by their names, steps on one clock."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tools import notebooks


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(notebooks.FOLDER))
    return importlib.import_module("common")


def test_unknown_sample_error_lists_the_samples(common: ModuleType) -> None:
    with pytest.raises(KeyError, match=r"no sample 'asinc': there are async, .*sync"):
        common.sample("asinc")


@pytest.mark.parametrize("name", ["cluster", "loss", "progress", "staleness"])
def test_figures_are_drawn_of_samples(common: ModuleType, name: str) -> None:
    drawn = common.sample("async").figure(name)
    assert any(axes.lines or axes.patches for axes in drawn.axes)


def test_steps_are_on_one_clock_in_order(common: ModuleType) -> None:
    steps = common.steps_of(common.sample("async"))
    assert steps["seconds"].iloc[0] == 0
    assert steps["seconds"].is_monotonic_increasing
    assert set(steps["task"]) == {"worker-0", "worker-1", "worker-2"}


def test_a_curve_is_points_and_a_line_in_order_of_x(common: ModuleType) -> None:
    axes: Axes = Figure().subplots()
    steps = common.steps_of(common.sample("sync")).sample(frac=1, random_state=1)
    common.curve(axes, steps["global_step"], steps["loss"], "loss")
    points, line = axes.lines
    assert list(points.get_xdata()) == sorted(steps["global_step"])
    assert line.get_label() == "loss"
    assert line.get_ydata().std() < points.get_ydata().std()  # smoother
