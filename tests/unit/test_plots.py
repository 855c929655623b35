"""The plots of a report: their values, their marks, and odd input."""

from __future__ import annotations

import io
import itertools
import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from PIL import Image

from lab.formatting import UNKNOWN
from lab.plots import (
    accuracy,
    cluster,
    loss,
    progress,
    smoothing,
    staleness,
    style,
    throughput,
    wait_time,
)
from lab.plots.data import Mark, Trace, evaluations_of, from_first_step, samples_of, steps_of
from lab.plots.registry import CHARTS
from lab.plots.shape import of_run, topology_of
from lab.records import FIELDS
from lab.run.dataframe import records_frame
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.run.summary import TaskSummary
from lab.statistics import mean_with_ci
from tests.support.specs import HOSTILE, run_info

SAMPLES = Path(__file__).parents[2] / "notebooks/samples"
ZERO = 1000.0
PS = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}


@pytest.fixture(autouse=True)
def few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are enough here, and take a fraction of the time."""
    monkeypatch.setattr(style, "_DPI", 30)


def info(experiment: str = "async", **changes: Any) -> RunInfo:
    given = {"cluster": PS, "submitted_unix": ZERO, **changes}
    return run_info("20260101-0000-async-aaaa", experiment, **given)


def records(*rows: Mapping[str, Any]) -> pd.DataFrame:
    """Records as `lab.run.dataframe` gives them."""
    columns = ["task", *FIELDS]
    frame = pd.DataFrame([{"kind": "step", "attempt": 0, **row} for row in rows], columns=columns)
    numbers = [name for name, kind in FIELDS.items() if kind is not str]
    return frame.astype(dict.fromkeys(numbers, "Float64"))


def steps(task: str, count: int = 20, **fixed: float) -> list[dict[str, Any]]:
    """A record each ten steps and each second, from the first second on."""
    return [
        {
            "task": task, "local_step": 10 * n, "global_step": 20 * n, "loss": 8 / n,
            "staleness": n % 3, "examples": 1000 * n, "step_time_s": 0.1, "time_unix": ZERO + n,
            **fixed,
        }
        for n in range(1, count + 1)
    ]  # fmt: skip


def trace(*rows: Mapping[str, Any], label: str = "one", **changes: Any) -> Trace:
    about = changes.pop("info", info())
    table, left_out = steps_of(about, records(*rows))
    given: dict[str, Any] = {"samples": samples_of(about, []), "left_out": left_out, **changes}
    return Trace(label, given.pop("group", "async"), about, table, **given)


def without_own_steps(**fixed: float) -> Trace:
    """A worker that prints no steps of its own."""
    return trace(*steps("worker-0", local_step=np.nan, examples=np.nan, **fixed))


def test_global_steps_alone_are_drawn() -> None:
    run = without_own_steps()
    assert loss.describe([run])[0].startswith("The loss goes from about 8 to ")
    assert throughput.describe([run])[0] == "20 global steps a second on average."
    assert "a worker's own steps" not in texts(progress.draw([run]))
    assert throughput.draw([run]) is not None


def test_epochs_alone_have_a_loss_and_no_throughput() -> None:
    run = without_own_steps(global_step=np.nan)
    assert loss.describe([run])[0].startswith("The loss goes from about 8 to ")
    assert progress.draw([run]) is None
    assert throughput.draw([run]) is None


def two_workers(**changes: Any) -> Trace:
    return trace(*steps("worker-0"), *steps("worker-1"), **changes)


def texts(figure: Figure | None) -> str:
    """Every text that the figure shows."""
    assert figure is not None
    style.png(figure)  # placed only when it is drawn
    found = figure.findobj(match=lambda each: hasattr(each, "get_text"))
    return "\n".join(each.get_text() for each in found)  # type: ignore[attr-defined]


def test_a_smoothed_line_is_not_shifted_and_keeps_a_straight_line() -> None:
    straight = np.arange(100.0)
    middle = slice(2, -2)
    assert smoothing.smoothed(straight)[middle] == pytest.approx(straight[middle])
    assert smoothing.window_for(1000) == 41
    assert smoothing.window_for(20) == 5


def own_program() -> RunInfo:
    about = info()
    return replace(about, spec=replace(about.spec, own=True))


def test_a_few_records_of_an_own_program_are_drawn_as_they_are() -> None:
    run = trace(*steps("worker-0", 3, global_step=np.nan, examples=np.nan), info=own_program())
    line = next(each for each in loss.draw([run]).axes[0].get_lines() if each.get_label() != "_")
    assert list(line.get_ydata()) == [8, 4, 8 / 3]
    assert loss.describe([run])[0] == "The loss goes from about 8 to 2.67."
    assert loss.caption([run]) == "A point is the loss of one record."
    assert "cross entropy" not in texts(loss.draw([run]))


def test_an_own_program_gets_no_advice_about_flags_that_it_lacks() -> None:
    run = trace(*steps("worker-0"), info=own_program())
    assert accuracy.missing([run]).endswith("such as step 500, test accuracy 0.91")


def test_the_interval_is_students() -> None:
    """Of 1, 2, 3: t of two degrees of freedom is 4.3027, s / sqrt(3) is 0.57735."""
    mean, half = mean_with_ci([[1.0], [2.0], [3.0]])
    assert (mean[0], half[0]) == (pytest.approx(2), pytest.approx(2.48414, abs=1e-4))
    assert np.isnan(mean_with_ci([[1.0]])[1][0])


def test_rates_add_up_to_the_total() -> None:
    seconds = np.array([0.0, 1.0, 2.0, 10.0])
    middles, rates = smoothing.rates(seconds, np.array([0.0, 30.0, 20.0, 80.0]))
    assert (rates >= 0).all()
    assert (rates * np.diff(np.linspace(0, 10, 5))).sum() == pytest.approx(80)
    assert middles[0] == 1.25
    assert len(smoothing.rates(np.array([1.0]), np.array([1.0]))[0]) == 0


def test_a_mean_over_runs_is_taken_where_all_have_values() -> None:
    one = np.array([0.0, 10.0]), np.array([0.0, 10.0])
    two = np.array([5.0, 20.0]), np.array([7.0, 22.0])
    found = smoothing.mean_curve([one, two])
    assert found is not None
    x, mean, half = found
    assert (x[0], x[-1]) == (5, 10)
    assert mean == pytest.approx(x + 1)
    assert half == pytest.approx(12.7062, abs=1e-3)  # t of one degree of freedom, times 1
    assert smoothing.mean_curve([one]) is None
    assert smoothing.mean_curve([one, (np.array([11.0, 12.0]), np.array([0.0, 0.0]))]) is None


def test_images_are_those_of_all_workers_and_of_all_attempts() -> None:
    again = [{**row, "attempt": 1} for row in steps("worker-1", 2)]
    late = [{**row, "time_unix": row["time_unix"] + 20} for row in again]
    found, _ = steps_of(info(), records(*steps("worker-0"), *steps("worker-1"), *late))
    assert found["images"].max() == 20_000 + 20_000 + 2_000
    assert found["images"].iloc[0] == 2000
    assert found["seconds"].is_monotonic_increasing


def test_images_of_a_ring_are_counted_once() -> None:
    """Each of its workers records the images of all: two workers, 825 steps of 100 images each."""
    run = RunDir(SAMPLES / json.loads((SAMPLES / "index.json").read_text())["ring"]["run"])
    found, _ = steps_of(run.read(), records_frame(run))
    assert found["images"].max() == 165_000


def test_two_gpus_of_a_worker_use_two_batches() -> None:
    rows = [{**row, "batch_size": 50, "examples": row["local_step"] * 100} for task in
            ("worker-0", "worker-1") for row in steps(task, 3)]  # fmt: skip
    placed = tuple({"task": f"worker-{n}", "gpus": ["a", "b"]} for n in range(2))
    found, _ = steps_of(info(tasks=placed), records(*rows))
    assert found["images"].max() == 2 * 3000


def test_images_are_counted_by_steps_without_records() -> None:
    rows = [{**row, "examples": None} for row in steps("worker-0", 3)]
    with_size, _ = steps_of(info(hyperparameters={"batch_size": 50}), records(*rows))
    assert list(with_size["images"]) == [500, 1000, 1500]
    without, _ = steps_of(info(), records(*rows))
    assert without["images"].isna().all()


def test_records_without_a_usable_time_are_counted() -> None:
    bad = [{**steps("worker-0", 1)[0], "time_unix": when} for when in (None, 1e300, float("inf"))]
    found, left_out = steps_of(info(), records(*steps("worker-0", 4), *bad))
    assert (len(found), left_out) == (4, 3)


def test_huge_values_are_no_numbers() -> None:
    found, _ = steps_of(info(), records(*steps("worker-0", 1, loss=1e300)))
    assert found["loss"].isna().all()


def test_invalid_samples_are_skipped() -> None:
    good = {"task": "worker-0", "gpu": "GPU-1", "time_unix": ZERO + 3, "utilisation": 0.5}
    bad = [[], {}, {**good, "utilisation": 7}, {**good, "task": 1}, {**good, "time_unix": "x"}]
    found = samples_of(info(), [good, *bad, {**good, "utilisation": 10**400}])
    assert found.to_dict("records") == [
        {"task": "worker-0", "gpu": "GPU-1", "seconds": 3.0, "utilisation": 0.5}
    ]


def test_runs_are_compared_from_their_first_steps() -> None:
    mark = Mark("worker-0", "fault", "pause", 5.0, 7.0)
    found = from_first_step(two_workers(marks=(mark,)))
    # Ten steps of 0.1 s are before the first record.
    assert found.steps["seconds"].iloc[0] == pytest.approx(1.0)
    assert (found.marks[0].begin, found.marks[0].end) == (pytest.approx(5.0), pytest.approx(7.0))
    assert "first step" in found.clock


@pytest.mark.parametrize(
    ("about", "links"),
    [
        (info(), {("ps-0", "worker-0"), ("ps-0", "worker-1")}),
        (
            info("multiworker", cluster={"worker": ["a:1", "b:1", "c:1"]}),
            {("worker-0", "worker-1"), ("worker-1", "worker-2"), ("worker-2", "worker-0")},
        ),
        (
            info("linear", cluster={"worker": ["a:1", "b:1"], "client": ["c:1"]}),
            {("client-0", "worker-0"), ("client-0", "worker-1")},
        ),
        (
            info("evaluator", cluster={**PS, "evaluator": ["d:1"]}),
            {("ps-0", "worker-0"), ("ps-0", "worker-1")},
        ),
        (info("hello", cluster={"local": ["a:1", "b:1"]}), {("local-0", "local-1")}),
        (info("multiworker", own=True, cluster={"worker": ["a:1", "b:1"]}), set()),
    ],
)
def test_connections(about: RunInfo, links: set[tuple[str, str]]) -> None:
    found = topology_of(of_run(about))
    assert set(found.links) == links
    assert found.ring is (about.spec.experiment == "multiworker" and not about.spec.own)


def test_the_cluster_shows_every_task_and_every_gpu() -> None:
    rows = ({"task": "ps-0", "node": "tf1", "gpus": []},
            {"task": "worker-0", "node": "tf2", "gpus": ["GPU-b", "GPU-c"]},
            {"task": "worker-1", "node": "tf3", "gpus": ["GPU-d"]})  # fmt: skip
    nodes = [{"name": "tf1", "gpus": ["GPU-a"]}, {"name": "tf2", "gpus": ["GPU-b", "GPU-c"]},
             {"name": "tf3", "gpus": ["GPU-d"]}]  # fmt: skip
    run = two_workers(info=info(tasks=rows, plan={"nodes": nodes}))
    shown = texts(cluster.draw([run])).split("\n")
    for word in ("ps-0", "worker-0", "worker-1", "tf1", "tf2", "tf3", "#0", "#1", "#2", "#3"):
        assert shown.count(word) == 1, word
    for word in ("/job:ps/task:0", "/job:worker/task:1", "tf1:2222", "GPU:1", "unused"):
        assert shown.count(word) == 1, word
    assert (shown.count("CPU:0"), shown.count("GPU:0")) == (3, 2)
    assert any("4 GPUs" in text for text in shown)


@pytest.mark.parametrize("workers", [1, 7, 40])
@pytest.mark.parametrize("apart", [True, False])
def test_no_two_tasks_of_the_picture_overlap(workers: int, apart: bool) -> None:
    where = [f"tf{number if apart else 0}:{2222 + number}" for number in range(workers + 1)]
    about = info(cluster={"ps": where[:1], "worker": where[1:]})
    figure = cluster.draw([trace(info=about)])
    assert figure is not None
    (axes,) = figure.axes
    boxes = [patch.get_window_extent() for patch in axes.patches if patch.get_zorder() == 4]
    assert len(boxes) == 2 * (workers + 1)  # each task and its CPU
    frame = axes.get_window_extent()
    assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_a_ring_closes_below_the_nodes_between() -> None:
    about = info("multiworker", cluster={"worker": [f"tf{n}:1" for n in range(4)]})
    figure = cluster.draw([trace(info=about)])
    assert figure is not None
    style.png(figure)
    patches = figure.axes[0].patches
    nodes = [each for each in patches if isinstance(each, FancyBboxPatch)][1:]
    arrows = [each for each in patches if isinstance(each, FancyArrowPatch)]
    (back,) = [each for each in arrows if each.get_path().get_extents().width > 5]
    bottom = min(node.get_bbox().y0 for node in nodes)
    low = sorted(back.get_path().vertices[:-1, 1])  # the last one only closes the tip
    assert low[0] == pytest.approx(low[1])  # level between its two lower corners
    assert low[1] < bottom


def test_a_diverged_loss_has_a_line_and_a_sentence() -> None:
    rows = steps("worker-0")
    for row in rows[12:]:
        row["loss"] = float("nan")
    run = trace(*rows, *steps("worker-1"))
    step = f"{rows[12]['global_step']:,}"
    sentence = (
        f"From step {step} on, no loss of worker-0 can be drawn (dotted line): it is NaN,"
        " infinite, huge or missing."
    )
    assert sentence in loss.describe([run])
    assert not any("worker-1" in each for each in loss.describe([run]))
    figure = loss.draw([run])
    assert figure is not None
    for axes in figure.axes:
        dotted = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
        assert len(dotted) == 1
    assert loss.describe([two_workers()]) == loss.describe([two_workers()])[:1]


def test_a_diverged_loss_among_several_runs() -> None:
    rows = steps("worker-0")  # steep: the axis is logarithmic
    for row in rows[12:]:
        row["loss"] = float("inf")
    runs = [
        trace(*rows, label="a", group="x"),
        trace(*steps("worker-0"), label="b", group="x"),
        trace(*steps("worker-0"), label="c", group="y"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = loss.draw(runs)
        assert figure is not None
        style.png(figure)
    output = [each for each in loss.describe(runs) if "dotted" in each]
    assert len(output) == 1
    assert f"From step {rows[12]['global_step']:,} on, no loss of worker-0 of a can" in output[0]
    for axes in figure.axes:
        assert [line.get_linestyle() for line in axes.get_lines()].count(":") == 1
        assert axes.get_ylim()[0] > 0


def test_a_diverged_loss_without_global_steps() -> None:
    rows = steps("worker-0")
    for row in rows:
        del row["global_step"]
    rows[-1]["loss"] = float("inf")
    run = trace(*rows)
    assert "From the dotted line on" in " ".join(loss.describe([run]))
    assert loss.draw([run]) is not None


def test_the_loss_has_three_panels_with_their_units() -> None:
    figure = loss.draw([two_workers()])
    shown = texts(figure)
    for label in ("global step (updates)", "wall time (s)", "images seen", "cross entropy"):
        assert label in shown
    assert figure is not None
    assert len(figure.axes) == 3
    for axes in figure.axes:
        assert len(axes.get_lines()) == 4  # of each worker the points and the line


def test_a_panel_without_numbers_is_left_out() -> None:
    rows = [{**row, "examples": None} for row in steps("worker-0")]
    figure = loss.draw([trace(*rows)])
    assert figure is not None
    assert len(figure.axes) == 2
    assert loss.draw([trace(*steps("worker-0", loss=float("nan")))]) is None


def test_points_are_thinned_with_a_notice() -> None:
    run = trace(*steps("worker-0", 4000))
    figure = loss.draw([run])
    assert figure is not None
    points = figure.axes[0].get_lines()[0]
    assert len(np.asarray(points.get_xdata())) == 1334
    assert "each 3rd is drawn" in loss.caption([run])
    assert "is drawn" not in loss.caption([two_workers()])


def test_many_points_hide_no_line() -> None:
    figure = loss.draw([trace(*steps("worker-0", 1200))])
    assert figure is not None
    points, line = figure.axes[0].get_lines()
    assert points.get_zorder() < line.get_zorder()
    assert points.get_alpha() == pytest.approx(0.12)
    few = loss.draw([two_workers()])
    assert few is not None
    assert few.axes[0].get_lines()[0].get_alpha() == 0.4


def test_several_runs_show_each_and_their_mean() -> None:
    runs = [from_first_step(two_workers(label=str(number))) for number in range(3)]
    figure = progress.draw(runs)
    assert figure is not None
    assert len(figure.axes[0].get_lines()) == 3 + 1
    assert "async (mean of 3)" in texts(figure)


def test_each_worker_has_its_own_line_of_steps() -> None:
    figure = progress.draw([trace(*steps("worker-0"), *steps("worker-1", 10))])
    assert figure is not None
    ends = [float(np.max(line.get_ydata())) for line in figure.axes[1].get_lines()]
    assert ends == [200, 100]
    assert "worker-0's" in progress.describe([two_workers()])[0]


def test_a_slowed_worker_begins_with_the_others() -> None:
    """Its first record follows after as many steps as theirs, and so is later."""
    slowed = [{**row, "time_unix": ZERO + 5 * n, "step_time_s": 0.5}
              for n, row in enumerate(steps("worker-1"), 1)]  # fmt: skip
    together = progress.describe([trace(*steps("worker-0"), *slowed)])[0]
    assert together.startswith("All workers begin together; the first record is 1.0 s after")
    late = [{**row, "time_unix": row["time_unix"] + 3} for row in steps("worker-1")]
    joins = progress.describe([trace(*steps("worker-0"), *late)])[0]
    assert joins.startswith("worker-1 begins 3.0 s after worker-0; ")
    untold = [{**row, "step_time_s": None} for row in steps("worker-0") + late]
    recorded = progress.describe([trace(*untold)])[0]
    assert recorded.startswith("worker-1 has its first record 3.0 s after worker-0; ")
    assert progress.describe([trace(*steps("worker-0"))])[0].startswith("The first record is")


def test_a_single_record_of_each_worker_is_no_course() -> None:
    run = trace(*steps("worker-0", 1), *steps("worker-1", 1))
    assert throughput.draw([run]) is None
    assert throughput.draw([run, run]) is None
    assert loss.describe([run]) == ["The loss is 8; no worker has a second record."]
    beside = throughput.draw([run, two_workers()])
    assert beside is not None
    assert len(beside.axes[0].get_lines()) == 1


def test_a_stable_pace_is_below_the_edge() -> None:
    figure = throughput.draw([two_workers()])
    assert figure is not None
    assert figure.axes[0].get_ylim() == pytest.approx((0, 1.08 * 20))


def test_a_figure_with_marks_has_a_legend() -> None:
    marks = tuple(Mark("worker-0", "fault", f"kill {n}", n) for n in range(1, 8))
    run = two_workers(marks=marks[:2])
    for draw in (loss.draw, progress.draw, throughput.draw, wait_time.draw):
        assert "1  worker-0, fault: kill 1\n2  worker-0, fault: kill 2" in texts(draw([run]))
        assert "faults, late starts and new starts" in texts(draw([two_workers(marks=marks)]))


def test_marks_take_nothing_from_the_height_of_the_curves() -> None:
    def height(*marks: Mark) -> float:
        figure = progress.draw([two_workers(marks=marks)])
        assert figure is not None
        style.png(figure)
        return figure.axes[0].get_window_extent().height / figure.dpi

    marks = tuple(Mark("worker-0", "fault", f"kill {n}", n) for n in range(1, 7))
    assert height(*marks) > 0.95 * height()


def test_marks_are_drawn_over_time_and_numbered() -> None:
    marks = (Mark("worker-0", "fault", "pause", 5.0, 7.0), Mark("worker-1", "late start", "x", 9.0))
    with_marks, without = texts(progress.draw([two_workers(marks=marks)])), texts(
        progress.draw([two_workers()])
    )  # fmt: skip
    assert with_marks.count("\n2\n") + with_marks.endswith("\n2") == without.count("\n2\n") + 2
    figure = throughput.draw([two_workers(marks=marks)])
    assert figure is not None
    spans = [patch.get_extents() for patch in figure.axes[0].patches]
    left, right = (
        figure.axes[0].transData.inverted().transform((x, 0))[0] for x in (spans[0].x0, spans[0].x1)
    )
    assert (left, right) == (pytest.approx(5), pytest.approx(7))


def test_gpus_are_drawn_where_they_were_sampled() -> None:
    sampled = samples_of(
        info(),
        [
            {"task": "worker-0", "gpu": "GPU-1", "time_unix": ZERO + n, "utilisation": 0.25}
            for n in range(20)
        ],
    )
    figure = throughput.draw([two_workers(samples=sampled)])
    assert figure is not None
    assert len(figure.axes) == 2
    (line,) = figure.axes[1].get_lines()
    assert np.asarray(line.get_ydata()) == pytest.approx(25)
    assert "sampled" not in " ".join(throughput.describe([two_workers(samples=sampled)]))
    bare = throughput.draw([two_workers()])
    assert bare is not None
    assert len(bare.axes) == 1
    assert "no GPU was sampled" in " ".join(throughput.describe([two_workers()]))


def test_waiting_is_drawn_as_its_share() -> None:
    run = trace(*steps("worker-0", wait_time_s=0.025), *steps("worker-1"))
    assert "worker-0 waits 25% of a step's 100 ms" in wait_time.describe([run])[0]
    figure = wait_time.draw([run])
    assert figure is not None
    drawn = [polygon.get_paths()[0].get_extents().height for polygon in figure.axes[0].collections]
    assert sorted(round(height, 3) for height in drawn)[-3:] == [0.2, 0.6, 0.8]
    assert "waits for others" in texts(figure)
    assert "waits for others" not in texts(wait_time.draw([two_workers()]))
    assert wait_time.describe([two_workers()])[0].startswith("No worker waits")


def strip(axes: Axes, row: int) -> list[tuple[str, float, float]]:
    """Colour, begin and end of the marks in the middle of a strip, in the order of drawing."""
    found = []
    for each in [*axes.collections, *axes.patches]:
        path = each.get_path() if isinstance(each, Rectangle) else each.get_paths()[0]
        box = path.get_extents(each.get_transform() - axes.transData)
        if box.y0 <= row + 0.1 <= box.y1 and box.y1 < row + 1 and box.width > 0:
            colour = to_hex(np.ravel(each.get_facecolor())[:3])
            found.append((colour, round(box.x0, 3), round(box.x1, 3)))
    return found


def test_a_paused_worker_has_a_gap_in_its_strip() -> None:
    """Its steps have a time that includes the pause."""
    pause = Mark("worker-0", "fault", "pause:2s worker-0", 5.0, 7.0, stands_still=True)
    slow = Mark("worker-1", "fault", "slow:0.5,2s worker-1", 5.0, 7.0)
    rows = steps("worker-0", 4) + steps("worker-1", 8)
    rows += [{**row, "step_time_s": 0.4} for row in steps("worker-0", 8)[7:]]
    figure = wait_time.draw([trace(*rows, marks=(pause, slow))])
    assert figure is not None
    assert (style.PALE, 5, 7) in strip(figure.axes[0], 1)
    assert (style.PALE, 5, 7) not in strip(figure.axes[0], 0)


def test_a_gap_shorter_than_a_step_is_no_pause() -> None:
    rows = [{**row, "step_time_s": 0.095} for row in steps("worker-0", 6)]
    late = [{**row, "time_unix": row["time_unix"] + 4} for row in steps("worker-0", 8)[6:]]
    lefts, widths, _ = wait_time._boxes(trace(*rows, *late), "worker-0")
    assert lefts == pytest.approx([0.05, 1, 2, 3, 4, 5, 10, 11])
    assert widths[1:] == pytest.approx(1)


def test_groups_without_step_times_have_no_row() -> None:
    ring = trace(*steps("worker-0", step_time_s=float("nan")), group="ring", label="ring")
    runs = [two_workers(), ring]
    figure = wait_time.draw(runs)
    assert figure is not None
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["async"]
    assert wait_time.describe(runs)[-1] == "ring: not drawn, no record holds the time of a step."
    waits = trace(*steps("worker-0", wait_time_s=0.01))
    assert wait_time.describe([waits, ring])[-1] == wait_time.describe(runs)[-1]


def test_a_run_without_a_step_is_in_no_mean_of_waiting() -> None:
    good = trace(*steps("worker-0", wait_time_s=0.025), label="good")
    failed = trace(label="failed")
    assert wait_time.describe([good, failed]) == wait_time.describe(
        [good, replace(good, label="more")]
    )
    figure = wait_time.draw([good, failed])
    assert figure is not None
    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert sum(widths) == pytest.approx(100)  # ms


def test_too_many_boxes_are_joined_by_time() -> None:
    wide = np.tile([1.0, 3.0], 2000)
    left = np.cumsum(wide) - wide
    lefts, widths, shares = wait_time.joined(left, wide, np.tile([1.0, 0.0], 2000))
    assert len(lefts) == 1000
    assert widths.sum() == pytest.approx(wide.sum())
    assert shares == pytest.approx(0.25)
    assert len(wait_time.joined(left[:9], wide[:9], wide[:9])[0]) == 9


def summed(task: str, staleness_sum: int, steps: int) -> TaskSummary:
    """The summary of a worker that reports the staleness of all its steps."""
    known = {"staleness_sum": staleness_sum, "staleness_steps": steps}
    return replace(
        TaskSummary(task, "worker", 0, "tf1", [], "succeeded", 0, 1, *[None] * 7), **known
    )


def test_a_histogram_counts_every_recorded_step() -> None:
    run = trace(*steps("worker-0"), *steps("worker-1", 3, staleness=500))
    figure = staleness.draw([run])
    assert figure is not None
    for axes in figure.axes:
        assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(100)
    assert "+" in texts(figure)  # values beyond the last bar are in it
    assert "worker-0 (n = 20)" in texts(figure)
    assert "worker-1 (n = 3)" in texts(figure)
    assert staleness.draw([trace(*steps("worker-0", staleness=float("nan")))]) is None


def test_the_first_step_of_a_worker_is_not_in_its_histogram() -> None:
    first = {**steps("worker-0", 1)[0], "local_step": 1, "staleness": 9000}
    figure = staleness.draw([trace(first, *steps("worker-0", 4))])
    assert "worker-0 (n = 4)" in texts(figure)
    assert figure is not None
    assert figure.axes[0].get_xlim()[1] < 10
    assert staleness.draw([trace(first)]) is None


def test_the_dashed_line_is_the_mean_over_all_steps() -> None:
    tasks = [summed("worker-0", 3000, 1000), summed("worker-1", 100, 100)]
    run = two_workers(tasks=tasks)
    figure = staleness.draw([run])
    assert figure is not None
    assert [axes.get_lines()[0].get_xdata()[0] for axes in figure.axes] == [3, 1]
    assert "mean over all steps" in texts(figure)
    (said,) = staleness.describe([run])
    assert said.endswith("3.00 for worker-0, 1.00 for worker-1; 2.82 for all workers.")
    other = replace(run, tasks=[summed("worker-0", 0, 50)])
    several = staleness.draw([run, other])  # the mean of the means of two runs
    assert several is not None
    assert several.axes[0].get_lines()[-1].get_xdata()[0] == pytest.approx((3100 / 1100 + 0) / 2)


def test_a_run_without_sums_has_no_mean() -> None:
    run = two_workers()
    figure = staleness.draw([run])
    assert figure is not None
    assert not figure.axes[0].get_lines()
    assert "mean over all steps" not in texts(figure)
    (said,) = staleness.describe([run])
    assert said.endswith(
        f"{UNKNOWN} for worker-0, {UNKNOWN} for worker-1; {UNKNOWN} for all workers."
    )


@pytest.mark.parametrize("runs", [1, 2])
def test_nothing_of_a_run_is_read_as_formula_or_markup(runs: int) -> None:
    about = info(
        HOSTILE,
        cluster={"ps": [f"{HOSTILE}:1"], "worker": ["_tf2:1"]},
        tasks=({"task": "worker-0", "node": HOSTILE, "gpus": [HOSTILE]},),
        backend=HOSTILE,
    )
    marks = (Mark("worker-0", "fault", HOSTILE, 3.0, 4.0),)
    tests = evaluations_of(about, records(evaluation(9, 0.5), evaluation(19, 0.6)))
    traces = [
        trace(*steps("worker-0", wait_time_s=0.01), *steps(HOSTILE), info=about, marks=marks,
              group=f"{HOSTILE}{number}", label=HOSTILE, evaluations=tests)
        for number in range(runs)
    ]  # fmt: skip
    for chart in CHARTS:
        figure = chart.draw(traces)
        assert figure is not None, chart.name
        drawing = style.svg(figure)
        root = ElementTree.fromstring(drawing)  # noqa: S314  (our own)
        tags = {each.tag.rpartition("}")[2] for each in root.iter()}
        assert not tags & {"script", "foreignObject", "a"}
        assert b"\x1b" not in drawing
        assert "\x1b" not in texts(figure)
        assert "\u202e" not in texts(figure)
    assert "$x^$" in texts(loss.draw(traces)).replace("…", "$x^$")


def test_a_name_that_begins_with_an_underscore_is_in_the_legend() -> None:
    figure = loss.draw([trace(*steps("_worker"))])
    assert figure is not None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [" _worker"]


def test_styles_differ_by_more_than_colour() -> None:
    looks = [style.line_style(number) for number in range(28)]
    assert len(set(looks)) == 28
    assert len({(each.line, each.marker) for each in looks[:7]}) == 7


def test_the_same_run_gives_the_same_bytes() -> None:
    def drawn() -> tuple[bytes, bytes]:
        figure = loss.draw([two_workers()])
        assert figure is not None
        return style.png(figure), style.svg(figure)

    first = drawn()
    assert first == drawn()
    assert Image.open(io.BytesIO(first[0])).size[0] == 30 * style.WIDE


def nothing() -> Sequence[Trace]:
    return [trace(info=info(cluster={}))]


def test_a_run_without_records_has_no_plots() -> None:
    for chart in CHARTS:
        assert chart.draw(nothing()) is None, chart.name
        assert chart.draw([*nothing(), *nothing()]) is None, chart.name


@pytest.mark.parametrize(
    "missing",
    [
        "global_step",
        "local_step",
        "loss",
        "staleness",
        "examples",
        "step_time_s",
        "global_step loss",
    ],
)
def test_records_may_lack_any_value(missing: str) -> None:
    """The lines of a printed program show what its author chose to print."""
    nothing = dict.fromkeys(missing.split(), np.nan)
    lacking = trace(*steps("worker-0", **nothing), *steps("worker-1", **nothing))
    for shown in ([lacking], [lacking, lacking], [lacking, two_workers(group="whole")]):
        for chart in CHARTS:
            figure = chart.draw(shown)
            found = chart.describe(shown) if figure is not None else [chart.missing(shown)]
            assert "nan" not in " ".join(found), chart.name


def test_a_throughput_without_global_steps_is_that_of_the_workers() -> None:
    lacking = trace(*steps("worker-0", global_step=np.nan))
    figure = throughput.draw([lacking])
    assert figure is not None
    assert [line.get_label() for line in figure.axes[0].get_lines()] == ["worker-0"]
    reason = "no two records hold a global step at different times"
    assert throughput.describe([lacking])[0] == f"Global steps are not drawn: {reason}."
    assert throughput.draw([lacking, lacking]) is None
    assert throughput.missing([lacking, lacking]) == reason
    whole = two_workers(group="whole")
    beside = throughput.describe([lacking, whole])
    assert beside[:2] == [
        f"async: not drawn, {reason}.", "whole: 20 global steps a second on average.",
    ]  # fmt: skip


def evaluation(step: int, accuracy: float, task: str = "worker-0", **more: Any) -> dict[str, Any]:
    """A record of a test on the test images, a second for every 20 steps."""
    row = {"task": task, "kind": "eval", "global_step": step, "accuracy": accuracy}
    return {**row, "time_unix": ZERO + step / 20, **more}


def evaluated(*rows: Mapping[str, Any], label: str = "one", group: str = "async") -> Trace:
    about = info()
    return trace(
        *steps("worker-0"), info=about, label=label, group=group,
        evaluations=evaluations_of(about, records(*rows)),
    )  # fmt: skip


def test_tests_are_those_of_the_shared_parameters() -> None:
    run = evaluated(
        evaluation(400, 0.9, message="final parameters", probe=400),
        evaluation(200, 0.5),
        evaluation(400, 0.95, message="moving averages of the parameters"),
        evaluation(300, float("nan")),
        {"task": "worker-1", "kind": "final", "accuracy": 0.7, "time_unix": ZERO + 9},
    )
    found = run.evaluations[["global_step", "accuracy", "is_final", "seconds"]].values.tolist()
    assert found == [[200, 0.5, False, 10], [400, 0.9, True, 20]]


def test_an_accuracy_is_drawn_if_a_task_tested_during_the_training() -> None:
    at_the_end = evaluated(
        evaluation(390, 0.8), evaluation(400, 0.81, "worker-1"), evaluation(400, 0.82, probe=400)
    )
    assert accuracy.draw([at_the_end]) is None
    assert accuracy.missing([at_the_end]).startswith("the accuracy at the end is 82.0%; no program")
    assert "--eval-every 500" in accuracy.missing([at_the_end])
    curve = evaluated(evaluation(100, 0.4), evaluation(200, 0.6), evaluation(400, 0.7, probe=400))
    figure = accuracy.draw([curve])
    assert "final parameters" in texts(figure)
    assert figure is not None
    line, final = figure.axes[0].get_lines()
    assert (line.get_xydata() == [[100, 0.4], [200, 0.6], [400, 0.7]]).all()
    assert (final.get_xydata() == [[400, 0.7]]).all()
    assert (figure.axes[1].get_lines()[0].get_xdata() == [5, 10, 20]).all()
    assert accuracy.describe([curve]) == ["The accuracy at the end is 70.0%."]


def test_the_accuracy_of_several_runs_has_a_line_for_each_group() -> None:
    several = [
        evaluated(evaluation(100, 0.4), evaluation(200, 0.6), label="a", group="async"),
        evaluated(evaluation(100, 0.3), evaluation(200, 0.5, probe=200), label="b", group="sync"),
    ]
    shown = texts(accuracy.draw(several))
    assert "async" in shown
    assert "sync" in shown
    assert accuracy.describe(several) == [
        "async: the accuracy at the end is 60.0%.",
        "sync: the accuracy at the end is 50.0%.",
    ]


def test_a_slow_first_step_counts_as_one_step() -> None:
    first = {**steps("worker-0", 1)[0], "local_step": 1, "step_time_s": 1.0, "wait_time_s": 0.5}
    rest = [
        {**row, "local_step": 100 * n, "step_time_s": 0.01, "wait_time_s": 0.0}
        for n, row in enumerate(steps("worker-0", 3)[1:], 1)
    ]
    # (1 x 1 s + 199 x 0.01 s) / 200 steps = 14.95 ms, and (1 x 0.5 s) / 200 steps
    assert wait_time.describe([trace(first, *rest)]) == [
        "On average worker-0 waits 17% of a step's 15 ms."
    ]
