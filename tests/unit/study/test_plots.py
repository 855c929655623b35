"""The plots of a report: their values, their marks, and odd input."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from syrupy.assertion import SnapshotAssertion

from lab.base.statistics import mean_with_ci
from lab.protocol.volume.states import State
from lab.runner.store.run_info import RunInfo
from lab.runner.store.summary import TaskSummary
from lab.study.plots import curves, staleness, style
from lab.study.plots.charts import CHARTS, Chart
from lab.study.plots.data import Mark, Trace, from_first_step, tidy
from lab.study.plots.style import mean_curve, rates, smoothed, window_for
from tests.support.recorded import records, steps
from tests.support.specs import HOSTILE, run_info

ZERO = 1000.0
PS = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}
NAN = float("nan")


def info(experiment: str = "async", **changes: Any) -> RunInfo:
    given = {"cluster": PS, "submitted_unix": ZERO, "state": State.SUCCEEDED, **changes}
    return run_info("20260101-0000-async-aaaa", experiment, **given)


def trace(*rows: Mapping[str, Any], label: str = "one", **changes: Any) -> Trace:
    about = changes.pop("info", info())
    data, left_out = tidy(about, records(*rows), changes.pop("gpu", ()))
    return Trace(label, changes.pop("group", "async"), about, data, left_out=left_out, **changes)


def two_workers(**changes: Any) -> Trace:
    return trace(*steps("worker-0"), *steps("worker-1"), **changes)


def evaluations(*rows: tuple[int, float, dict[str, Any]]) -> list[dict[str, Any]]:
    """Tests on the test images, a second for every 20 steps."""
    return [
        {"task": "worker-0", "kind": "eval", "global_step": step, "accuracy": share,
         "time_unix": ZERO + step / 20, **more}
        for step, share, more in rows
    ]  # fmt: skip


def evaluated(*rows: tuple[int, float, dict[str, Any]], **changes: Any) -> Trace:
    return trace(*steps("worker-0"), *evaluations(*rows), **changes)


def diverged(value: float, **changes: Any) -> Trace:
    """From its step 260 on, worker-0 has no loss."""
    rows = [
        row if row["local_step"] <= 120 else {**row, "loss": value} for row in steps("worker-0")
    ]
    return trace(*rows, *steps("worker-1"), **changes)


def shown(figure: Figure | None) -> Figure:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()
    return figure


def texts(figure: Figure | None) -> str:
    found = shown(figure).findobj(match=lambda each: hasattr(each, "get_text"))
    return "\n".join(each.get_text() for each in found)  # type: ignore[attr-defined]


def lines(axes: Axes) -> dict[str, Line2D]:
    return {str(each.get_label()): each for each in axes.get_lines() if each.get_label()[0] != "_"}


def heights(axes: Axes) -> list[float]:
    bars: list[Any] = [*axes.patches]
    return [bar.get_height() for bar in bars]


AGAIN = [{**row, "attempt": 1} for row in steps("worker-1", 2, later=20)]
TWO_GPUS = tuple({"task": f"worker-{n}", "gpus": ["a", "b"]} for n in range(2))


@pytest.mark.parametrize(
    ("about", "rows", "first", "most"),
    [
        (info(), [*steps("worker-0"), *steps("worker-1"), *AGAIN], 2000, 42_000),
        (info(tasks=TWO_GPUS), [{**row, "batch_size": 50} for n in range(2)
                                for row in steps(f"worker-{n}", 3)], 2000, 6000),
        (info(hyperparameters={"batch_size": 50}), steps("worker-0", 3, examples=None), 500, 1500),
        (info(), steps("worker-0", 3, examples=None), NAN, NAN),
        # In a ring, each worker's `examples` count the images of all.
        (info(hyperparameters={"batch_size": 50}), [*steps("worker-0", 3), *steps("worker-1", 3)],
         1000, 3000),
    ],
    ids=["workers and attempts", "two GPUs of a worker", "by steps", "unknown", "a ring"],
)  # fmt: skip
def test_images_are_those_of_all_workers(
    about: RunInfo, rows: list[Any], first: float, most: float
) -> None:
    found, _ = tidy(about, records(*rows), ())
    ends = found["images"].iloc[0], found["images"].max()
    assert ends == pytest.approx((first, most), nan_ok=True)
    assert found["seconds"].is_monotonic_increasing


def test_values_that_are_no_numbers_are_left_out() -> None:
    bad = [{**steps("worker-0", 1)[0], "time_unix": when} for when in (None, 1e300, float("inf"))]
    good = {"task": "worker-0", "gpu": "GPU-1", "time_unix": ZERO + 3, "utilisation": 0.5}
    odd = [
        {**good, **each}
        for each in ({"utilisation": 7}, {"task": 1}, {"time_unix": "x"}, {"utilisation": 10**400})
    ]
    found = trace(*steps("worker-0", 4, loss=1e300), *bad, gpu=[good, {}, *odd])
    assert (found.left_out, len(found.of("loss")), len(found.values("loss"))) == (3, 4, 0)
    sampled = found.of("utilisation")
    assert sampled[["task", "seconds", "value"]].to_numpy().tolist() == [["worker-0", 3.0, 0.5]]


def test_runs_are_compared_from_their_first_steps() -> None:
    """Ten steps of 0.1 s are before the first record."""
    found = from_first_step(two_workers(marks=(Mark("worker-0", "fault", "pause", 5.0, 7.0),)))
    assert found.data["seconds"].iloc[0] == pytest.approx(1.0)
    assert (found.marks[0].begin, found.marks[0].end) == (pytest.approx(5.0), pytest.approx(7.0))
    assert found.clock == "wall time since the first step began (s)"


def test_the_first_step_is_of_the_worker_that_began_first() -> None:
    """worker-1's one slow step is recorded before the ten fast ones that worker-0 began earlier."""
    slow = {**steps("worker-1", 1)[0], "local_step": 1, "time_unix": ZERO + 0.5}
    found = from_first_step(trace(slow, *steps("worker-0")))
    assert found.of("loss")["seconds"].tolist()[:2] == pytest.approx([0.5, 1.0])


def test_a_smoothed_line_is_not_shifted_and_keeps_a_straight_line() -> None:
    straight = np.arange(100.0)
    assert smoothed(straight)[2:-2] == pytest.approx(straight[2:-2])
    assert [window_for(count) for count in (14, 20, 1000)] == [1, 5, 41]
    # It begins at the first value and ends at a mean.
    falling = np.array([16.3, *np.linspace(6, 2, 400)])
    found = smoothed(falling)
    assert found[0] == 16.3
    assert found[1] == pytest.approx(falling[:3].mean())
    assert found[-1] == pytest.approx(falling[-9:].mean())  # of a window of 17


def test_rates_add_up_to_the_total() -> None:
    seconds = np.array([0.0, 1.0, 2.0, 10.0])
    middles, found = rates(seconds, np.array([0.0, 30.0, 20.0, 80.0]))
    assert (found >= 0).all()
    assert (found * np.diff(np.linspace(0, 10, 5))).sum() == pytest.approx(80)
    assert middles[0] == 1.25
    assert len(rates(np.array([1.0]), np.array([1.0]))[0]) == 0


def test_a_mean_over_runs_is_taken_where_all_have_values() -> None:
    one = np.array([0.0, 10.0]), np.array([0.0, 10.0])
    two = np.array([5.0, 20.0]), np.array([7.0, 22.0])
    x, mean, half = mean_curve([one, two]) or ()
    assert (x[0], x[-1]) == (5, 10)
    assert mean == pytest.approx(x + 1)
    assert half == pytest.approx(12.7062, abs=1e-3)  # t of one degree of freedom, times 1
    assert mean_curve([one]) is None
    assert mean_curve([one, (np.array([11.0, 12.0]), np.array([0.0, 0.0]))]) is None
    # Of 1, 2, 3: t of two degrees of freedom is 4.3027, s / sqrt(3) is 0.57735.
    assert np.ravel(mean_with_ci([[1.0], [2.0], [3.0]])) == pytest.approx([2, 2.48414], abs=1e-4)


def summed(task: str, staleness_sum: int, count: int) -> TaskSummary:
    bare = TaskSummary(task, "worker", 0, "tf1", [], "succeeded", 0, 1, *[None] * 7)
    return replace(bare, staleness_sum=staleness_sum, staleness_steps=count)


OWN = replace(info(), spec=replace(info().spec, own=True))
SLOW = [{**row, "time_unix": ZERO + 5 * n, "step_time_s": 0.5}
        for n, row in enumerate(steps("worker-1"), 1)]  # fmt: skip
MARKS = tuple(Mark("worker-0", "fault", f"kill {n}", n) for n in range(1, 8))
SAMPLED = [{"task": "worker-0", "gpu": "GPU-1", "time_unix": ZERO + n, "utilisation": 0.25}
           for n in range(20)]  # fmt: skip
TESTED = replace(summed("worker-1", 0, 1), accuracy=0.5)
COPIES = [replace(summed(f"worker-{n}", 0, 1), accuracy=0.75) for n in range(2)]
SUMS = [summed("worker-0", 3000, 1000), summed("worker-1", 100, 100)]
CURVE = [(400, 0.7, {"probe": 400, "message": "final parameters"}), (200, 0.6, {}), (100, 0.4, {})]
POINTS = [[100, 0.4], [200, 0.6], [400, 0.7]]
NOT_OF_THE_PARAMETERS = [(300, NAN, {}), (400, 0.7, {"task": "worker-1", "kind": "final"}),
                         (400, 0.95, {"message": "moving averages of the parameters"})]  # fmt: skip

RUNS = {
    "nothing": [trace(info=info(cluster={}))],
    "two workers": [two_workers()],
    "three runs": [from_first_step(two_workers(label=str(n))) for n in range(3)],
    "epochs alone": [trace(*steps("worker-0", local_step=NAN, global_step=NAN))],
    "an own program": [trace(*steps("worker-0", 3, global_step=NAN, examples=NAN), info=OWN)],
    "a diverged worker": [diverged(NAN)],
    "a diverged worker of several runs": [
        diverged(float("inf"), label="a", group="x"), two_workers(label="b", group="x"),
        two_workers(label="c", group="y"),
    ],
    "diverged without global steps": [trace(*steps("worker-0", 3, global_step=NAN),
                                            *steps("worker-0", 1, 9, global_step=NAN, loss=NAN))],
    "many records": [trace(*steps("worker-0", 4000))],
    # Its first record follows after as many steps as theirs, and so is later.
    "a slowed worker": [trace(*steps("worker-0"), *SLOW)],
    "a late worker": [trace(*steps("worker-0"), *steps("worker-1", later=3))],
    "a late worker without step times": [
        trace(*steps("worker-0", step_time_s=None), *steps("worker-1", later=3, step_time_s=None))
    ],
    "single records": [trace(*steps("worker-0", 1), *steps("worker-1", 1))],
    "several with single records": [trace(*steps("worker-0", 1))] * 2,
    "a failed run beside another": [trace(*steps("worker-0"), label="good"), trace(label="failed")],
    "GPUs": [two_workers(gpu=SAMPLED)],
    "a record beside others": [trace(*steps("worker-0", 1)), two_workers()],
    "sums of the staleness": [two_workers(tasks=SUMS)],
    "tests": [evaluated(*CURVE, *NOT_OF_THE_PARAMETERS)],
    "equal copies": [trace(*steps("worker-0"), tasks=COPIES)],
    "copies that differ": [trace(*steps("worker-0"), tasks=[COPIES[0], TESTED])],
    "PyTorch": [trace(*steps("worker-0"), info=info(framework="torch"))],
    "tests at the end": [evaluated((390, 0.8, {}), (400, 0.82, {"probe": 400}))],
    "tests of two groups": [
        evaluated(*CURVE[1:], label="a"),
        evaluated((100, 0.3, {}), (200, 0.5, {"probe": 200}), label="b", group="sync"),
    ],
    "without examples beside others": [
        trace(*steps("worker-0", examples=NAN), *steps("worker-1", examples=NAN)),
        two_workers(group="whole"),
    ],
    "no global steps beside others": [
        trace(*steps("worker-0", global_step=NAN)), two_workers(group="whole")
    ],
    **{
        f"without {name}": [
            trace(*steps("worker-0", **{name: NAN}), *steps("worker-1", **{name: NAN}))
        ]
        for name in ("global_step", "local_step", "staleness", "examples", "step_time_s", "loss")
    },
}  # fmt: skip


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_a_figure_is_drawn_of_the_runs_that_have_its_data(
    chart: Chart, snapshot: SnapshotAssertion
) -> None:
    """The runs without a figure; each figure has a title, labelled axes and a caption."""
    missing = []
    for name, runs in RUNS.items():
        figure = chart.draw(runs)
        if figure is None:
            missing.append(name)
            continue
        assert chart.caption(runs).endswith(".")
        assert figure.get_supxlabel() or any(axes.get_xlabel() for axes in shown(figure).axes)
    assert missing == snapshot


def test_a_caption_speaks_of_gpus_events_and_groups_only_where_there_are_some() -> None:
    chart = next(chart for chart in CHARTS if chart.name == "throughput")
    words = ("GPU", "Dashed lines", "form a group")
    group = RUNS["three runs"]
    for runs, shown in (
        ([two_workers()], (False, False, False)),
        ([two_workers(marks=MARKS)], (False, True, False)),
        (RUNS["GPUs"], (True, False, False)),
        ([group[0], replace(group[1], group="x")], (False, False, False)),
        (group, (False, False, True)),
    ):
        assert tuple(word in chart.caption(runs) for word in words) == shown
        assert not {"{", "}"} & set("".join(each.caption(runs) for each in CHARTS))
    assert not any("GPU" in each.title for each in CHARTS)


AGAINST = {
    "global step (updates)": "step",
    "wall time since the submission (s)": "seconds",
    "images seen by all workers": "images",
}


@pytest.mark.parametrize(
    ("name", "panels", "every", "alpha"),
    [
        ("two workers", [*AGAINST], 1, 0.4),
        ("without examples", [*AGAINST][:2], 1, 0.4),
        ("an own program", [*AGAINST][1:2], 1, 0.4),
        ("many records", [*AGAINST], 3, 0.12),
    ],
)
def test_a_worker_has_pale_points_and_a_smoothed_line_in_each_panel(
    name: str, panels: list[str], every: int, alpha: float
) -> None:
    (run,) = RUNS[name]
    axes = shown(curves.loss([run])).axes
    assert [each.get_xlabel() for each in axes] == panels
    for each in axes:
        assert each.get_xlim()[0] == 0
        x, drawn = AGAINST[each.get_xlabel()], each.get_lines()
        one_model = len(run.workers) > 1
        dots = drawn[:-1] if one_model else drawn[::2]
        for task, points in zip(run.workers, dots, strict=True):
            wanted = np.column_stack(run.points(x, "loss", task))[::every]
            assert points.get_xydata() == pytest.approx(wanted)
            assert points.get_alpha() == alpha
        # Workers that share a model have one line, which begins at the first loss.
        at, losses = run.points(x, "loss")
        moments, places = np.unique(at, return_inverse=True)
        means = np.bincount(places, losses) / np.bincount(places)
        wanted = np.column_stack([moments, smoothed(means)])[::every]
        assert drawn[-1].get_xydata() == pytest.approx(wanted)
        assert drawn[-1].get_ydata()[0] == pytest.approx(means[0])
    limits = 0.85 * run.values("loss").min(), 1.15 * run.values("loss").max()
    # The axis is logarithmic if the losses differ by more than a factor of 4.
    assert (axes[0].get_ylim() == pytest.approx(limits)) is (name != "an own program")


@pytest.mark.parametrize("draw", [curves.loss, curves.progress, curves.throughput])
def test_a_group_has_pale_lines_and_a_strong_mean_with_its_interval(draw: Any) -> None:
    """Its three runs are the same, so their mean is the same line, and the interval is none."""
    for axes in shown(draw(RUNS["three runs"])).axes:
        assert [line.get_alpha() for line in axes.get_lines()] == [0.3, 0.3, 0.3, None]
        (mean,) = lines(axes).values()
        assert mean.get_label() == "async (mean of 3)"
        x, y = axes.get_lines()[0].get_xydata().T
        assert mean.get_ydata() == pytest.approx(np.interp(mean.get_xdata(), x, y))
        (interval,) = axes.collections
        box = interval.get_paths()[0].get_extents()
        assert (box.x0, box.x1) == pytest.approx((x[0], x[-1]))
        assert (box.y0, box.y1) == pytest.approx((y.min(), y.max()))


def test_the_loss_of_one_of_several_runs_is_the_mean_of_its_workers() -> None:
    run = trace(*steps("worker-0"), *steps("worker-1", loss=2.0))
    mean = smoothed(np.array([(8 / n + 2) / 2 for n in range(1, 21)]))
    for axes in shown(curves.loss([run, replace(run, group="other")])).axes[:2]:
        assert [line.get_ydata() for line in axes.get_lines()] == [pytest.approx(mean)] * 2


def test_workers_that_record_at_almost_the_same_steps_draw_no_staircase() -> None:
    """A falling loss falls as evenly between the records as from one to the next."""
    rows = [
        {**row, "global_step": 100 * n + worker, "loss": 20.0 - n}
        for worker in range(2)
        for n, row in enumerate(steps(f"worker-{worker}"), 1)
    ]
    line = shown(curves.loss([trace(*rows)])).axes[0].get_lines()[-1]
    x, y = line.get_xdata(), line.get_ydata()
    assert x[:3].tolist() == [100.5, 200.5, 300.5]
    assert (np.diff(y)[:-2] / np.diff(x)[:-2]) == pytest.approx(-0.01)


def test_a_late_worker_is_behind_by_its_own_steps_alone() -> None:
    both, own = shown(curves.progress(RUNS["a late worker"])).axes
    for axes, last in ((both, 400), (own, 200)):
        ends = {name: line.get_xydata()[-1].tolist() for name, line in lines(axes).items()}
        assert ends == {"worker-0": [20, last], "worker-1": [23, last]}
        assert axes.get_ylim()[0] == 0


@pytest.mark.parametrize(
    ("name", "panels"),
    [
        ("two workers", [{"global steps": 20, "worker-0": 10, "worker-1": 10}]),
        ("GPUs", [{"global steps": 20, "worker-0": 10, "worker-1": 10}, {"worker-0": 25}]),
        ("without global_step", [{"worker-0": 10, "worker-1": 10}]),
        # Several runs are compared by images, of which an update of theirs uses 100.
        ("a record beside others", [{"async": 2000}]),
        ("without examples beside others", [{"async": 20, "whole": 20}]),
    ],
)
def test_throughput_is_the_growth_of_each_number_of_steps(
    name: str, panels: list[dict[str, int]]
) -> None:
    axes = shown(curves.throughput(RUNS[name])).axes
    found = [{label: line.get_ydata() for label, line in lines(each).items()} for each in axes]
    wanted = [{label: pytest.approx(value) for label, value in each.items()} for each in panels]
    assert found == wanted
    assert axes[0].get_ylim() == (0, pytest.approx(1.08 * max(panels[0].values())))


def test_the_speed_is_drawn_until_the_first_worker_has_finished() -> None:
    """worker-1 ends after 10 of 20 s; then worker-0 alone makes half of the updates."""
    alone = [
        {**row, "global_step": 200 + 10 * n} for n, row in enumerate(steps("worker-0", 10, 10))
    ]
    rows = [*steps("worker-0", 10), *steps("worker-1", 10), *alone]
    for state, last in ((State.SUCCEEDED, 10), (State.FAILED, 20)):
        tasks = [replace(summed("worker-1", 0, 1), state=state)]
        axes = shown(curves.throughput([trace(*rows, tasks=tasks)])).axes[0]
        x, y = lines(axes)["global steps"].get_xydata().T
        assert last - 2 < x[-1] < last
        assert bool(y.min() > 19.9) is (last == 10)


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("tests", {"tests": POINTS, "final parameters": POINTS[2:]}),
        ("tests of two groups", {"async": POINTS[:2], "sync": [[100, 0.3], [200, 0.5]]}),
    ],
)
def test_the_tests_are_drawn_by_step_and_by_time(name: str, points: dict[str, Any]) -> None:
    by_step, by_time = shown(curves.accuracy(RUNS[name])).axes
    found = {label: line.get_xydata().tolist() for label, line in lines(by_step).items()}
    assert found == points
    ends = [line.get_xdata()[-1] for line in lines(by_time).values()]
    assert ends == [each[-1][0] / 20 for each in points.values()]


def test_a_diverged_loss_is_drawn_until_its_last_finite_value() -> None:
    for axes in shown(curves.loss(RUNS["a diverged worker"])).axes[:2]:
        first, second = (lines(axes)[f"worker-{n}"].get_ydata() for n in range(2))
        assert (len(first), len(second)) == (12, 20)
        assert np.isfinite([*first, *second]).all()
        assert axes.get_ylim()[0] > 0  # steep: the axis is logarithmic


def test_a_mark_of_a_run_is_a_dashed_line_and_an_area_until_its_end() -> None:
    marks = (Mark("worker-0", "fault", "pause", 5.0, 7.0), Mark("worker-1", "new start", "", 9.0))
    for draw, timed in (
        (curves.loss, 1),
        (curves.progress, 0),
        (curves.progress, 1),
        (curves.throughput, 0),
    ):
        axes, without = (shown(draw([two_workers(marks=each)])).axes[timed] for each in (marks, ()))
        added = axes.get_lines()[len(without.get_lines()) :]
        assert [line.get_xdata()[0] for line in added] == [5, 9]
        patches: list[Any] = [*axes.patches]
        (area,) = patches
        assert (area.get_x(), area.get_width()) == (5, 2)
        assert axes.get_xlim() == without.get_xlim()
    of_two = shown(curves.loss([two_workers(marks=marks), two_workers(group="x")]))
    assert not any(axes.patches for axes in of_two.axes)


def test_a_histogram_counts_every_recorded_step_but_the_first() -> None:
    first = {**steps("worker-0", 1)[0], "local_step": 1, "staleness": 9000}
    stale = steps("worker-1", 30, staleness=500)
    figure = shown(staleness.draw([trace(first, *steps("worker-0", 40), *stale)]))
    for axes in figure.axes:
        assert sum(heights(axes)) == pytest.approx(100)
        assert axes.get_xlim()[1] < 30
    for word in ("+", "worker-0 (n = 40)", "worker-1 (n = 30)"):  # +: values beyond the last bar
        assert word in texts(figure)
    assert staleness.draw([trace(first)]) is None


def test_few_steps_are_dots_of_their_own_and_no_histogram() -> None:
    """In all panels, so that they can be compared: a dot for each step, on top of its equals."""
    rows = [*steps("worker-0", 40), *steps("worker-1", 29, staleness=500)]
    figure = shown(staleness.draw([trace(*rows)]))
    assert not any(heights(axes) for axes in figure.axes)
    many, few = (axes.get_lines()[0].get_xydata().tolist() for axes in figure.axes)
    assert (len(many), len(few)) == (40, 29)
    assert few == [[25, height] for height in range(1, 30)]
    assert len({tuple(dot) for dot in many}) == 40
    assert "recorded steps" in texts(figure)
    assert "%" not in texts(figure)


def test_the_dashed_line_is_the_mean_over_all_steps() -> None:
    run = trace(*steps("worker-0", 60), *steps("worker-1", 60), tasks=SUMS)
    figure = shown(staleness.draw([run]))
    assert [axes.get_lines()[0].get_xdata()[0] for axes in figure.axes] == [3, 1]
    for axes in figure.axes:
        assert heights(axes) == pytest.approx([100 / 3] * 3 + [0])
    assert "mean over all steps" in texts(figure)
    other = replace(run, tasks=[summed("worker-0", 0, 50)])  # the mean of the means of two runs
    line = shown(staleness.draw([run, other])).axes[0].get_lines()[-1]
    assert line.get_xdata()[0] == pytest.approx((3100 / 1100 + 0) / 2)
    without = shown(staleness.draw([replace(run, tasks=())]))
    assert not without.axes[0].get_lines()
    assert "mean over all steps" not in texts(without)


@pytest.mark.parametrize("runs", [1, 2])
def test_nothing_of_a_run_is_read_as_formula_or_markup(runs: int) -> None:
    about = info(
        HOSTILE, cluster={"ps": [f"{HOSTILE}:1"], "worker": ["_tf2:1"]}, backend=HOSTILE,
        tasks=({"task": "worker-0", "node": HOSTILE, "gpus": [HOSTILE]},),
    )  # fmt: skip
    rows = [*steps("worker-0"), *steps(f"_{HOSTILE}"), *evaluations(*CURVE)]
    one = trace(
        *rows, info=about, label=HOSTILE, marks=(Mark("worker-0", "fault", HOSTILE, 3.0, 4.0),),
    )  # fmt: skip
    traces = [replace(one, group=f"{HOSTILE}{number}") for number in range(runs)]
    for chart in CHARTS:
        figure = shown(chart.draw(traces))
        drawing = style.svg(figure)
        tags = {each.tag.rpartition("}")[2] for each in ElementTree.fromstring(drawing).iter()}  # noqa: S314  (our own)
        assert not tags & {"script", "foreignObject", "a"}, chart.name
        assert b"\x1b" not in drawing, chart.name
        assert not {"\x1b", "\u202e"} & set(texts(figure)), chart.name
    drawn = texts(curves.loss(traces))
    assert ("$x^$" in drawn.replace("…", "$x^$"), " _<script>" in drawn) == (True, runs == 1)


def test_the_same_run_gives_the_same_bytes_whatever_the_users_settings_are() -> None:
    figures = []
    for settings in ({}, {"font.size": 40, "text.usetex": True, "savefig.dpi": 30}):
        with mpl.rc_context(settings):
            figure = shown(curves.loss([two_workers()]))
            figures.append((style.png(figure), style.svg(figure)))
    assert figures[0] == figures[1]


def test_a_long_legend_takes_no_room_from_the_panels() -> None:
    for lines, height in ((3, 4.0), (15, 4.0 + 12 * style._LEGEND_LINE)):
        figure = style.new_figure(4.0)
        style.legend(figure, [Line2D([], [], label="x" * 99) for _ in range(lines)])
        assert figure.get_figheight() == pytest.approx(height)
