"""Means, intervals and trends of a sweep, against figures that were worked out by other means."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from lab.formatting import p_value
from lab.run.summary import ResultSummary, Summary
from lab.sweep.grid import Point
from lab.sweep.results import RunResult
from lab.sweep.statistics import Trend, mean, means, trends
from lab.sweep.view import as_csv, as_json, conclusion, format_mean, settings_table, trends_table

SUMMARY = Summary(
    run_id="r",
    experiment="staleness",
    backend="local",
    state="succeeded",
    reason="",
    degraded=False,
    global_step=300,
    updates_conserved=True,
    updates_lost=0,
    steps_redone=0,
    resumed_from="",
    accuracy=None,
    wall_s=1.0,
    first_step_s=1.0,
    steps_per_s=None,
    records_lost=0,
    tasks=[],
)


def made(repeat: int, loss: float | None, state: str = "succeeded", **values: str) -> RunResult:
    results = [] if loss is None else [ResultSummary("loss", "worker-0", loss, None, None, True)]
    return RunResult(Point(values, repeat), replace(SUMMARY, state=state, results=results))


def along(
    rows: Sequence[Sequence[float]], values: Sequence[str] = ("1", "2", "4")
) -> list[RunResult]:
    """A row for each repeat, with a loss for each number of workers."""
    return [
        made(repeat, loss, workers=value)
        for repeat, row in enumerate(rows)
        for value, loss in zip(values, row, strict=True)
    ]


def only(runs: Sequence[RunResult]) -> Trend:
    (trend,) = trends(runs, "workers")
    return trend


def test_a_mean_has_students_interval() -> None:
    found = mean([1.0, 2.0, 3.0])
    # t of 0.975 with two degrees of freedom is 4.302653; the deviation of the mean 1/sqrt(3).
    assert (found.value, found.runs) == (2.0, 3)
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert mean([5.0]).half is None


def test_runs_of_the_same_setting_share_a_row_and_those_that_failed_have_no_figure() -> None:
    runs = [
        made(0, 1.0, a="1"),
        made(0, 5.0, a="2"),
        made(1, 3.0, a="1"),
        made(1, 9.0, "lost", a="2"),
    ]
    first, second = means(runs)
    assert (first.values, first.runs, first.of) == ({"a": "1"}, 2, 2)
    assert first.means["loss"].value == 2.0
    assert (second.runs, second.of) == (1, 2)
    assert second.means["loss"].value == 5.0


def test_pages_test_of_three_repeats_that_agree() -> None:
    # Each of 3 rows has one of 3! orders: all three as expected by chance in 1 of 216, on one side.
    trend = only(along([(1, 2, 3), (1, 2, 3), (5, 6, 7)]))
    assert (trend.rho, trend.p, trend.repeats) == (pytest.approx(1), pytest.approx(2 / 216), 3)
    assert conclusion(trend) == "rises"
    falling = only(along([(3, 2, 1), (3, 2, 1), (7, 6, 5)]))
    assert (falling.rho, falling.p) == (pytest.approx(-1), pytest.approx(2 / 216))
    assert conclusion(falling) == "falls"


def test_a_common_effect_of_one_seed_is_no_trend() -> None:
    # Between the rows the loss differs a hundred times as much as within them.
    trend = only(along([(100, 101, 102), (1, 2, 3), (300, 301, 302)]))
    assert trend.rho == pytest.approx(1)
    trend = only(along([(100, 99, 101), (2, 1, 3), (300, 302, 301)]))
    assert (trend.rho, conclusion(trend)) == (pytest.approx(0.5), "no trend")


def test_two_values_are_compared_by_wilcoxons_test() -> None:
    # Six of six differences above 0: by chance in 2 of 64, from both sides.
    runs = along([(k, k + 1 + k / 10) for k in range(1, 7)], ("1", "2"))
    assert (only(runs).rho, only(runs).p) == (pytest.approx(1), pytest.approx(2 / 64))
    # With three repeats it can be 1 in 4 at best, and no claim follows.
    assert conclusion(only(runs[:6])) == "too few repeats"


def test_values_count_as_numbers_not_as_texts() -> None:
    runs = along([(1, 2, 3)] * 3, ("9", "10", "100"))
    assert only(runs).rho == pytest.approx(1)


def test_each_setting_of_the_others_is_judged_by_itself() -> None:
    runs = [
        made(repeat, sign * index, workers=value, rate=rate)
        for repeat in range(3)
        for index, value in enumerate(("1", "2", "4"))
        for rate, sign in (("0.1", 1), ("1", -1))
    ]
    assert [(each.held, round(each.rho)) for each in trends(runs, "workers")] == [
        ({"rate": "0.1"}, 1),
        ({"rate": "1"}, -1),
    ]


@pytest.mark.parametrize(
    "runs",
    [
        along([(1, 2, 3)]),  # one repeat
        along([(4, 4, 4)] * 3),  # the same everywhere
        along([(1,)] * 3, ("1",)),  # one value
        [made(r, i, model=m) for r in range(3) for i, m in enumerate(("softmax", "mlp"))],
        along([(1, 2, 3)] * 2)[:-1],  # the second repeat lacks a run
        [made(r, None, workers=w) for r in range(3) for w in ("1", "2", "4")],
    ],
)
def test_without_enough_data_nothing_is_printed(runs: list[RunResult]) -> None:
    assert list(trends(runs, next(iter(runs[0].point.values)))) == []


def test_a_training_that_ends_at_no_number_has_no_figure() -> None:
    runs = along([(1, 2, 3), (1, 2, float("nan")), (1, 2, 4)])
    last = means(runs)[-1]
    assert (last.runs, last.of, last.means["loss"].runs) == (3, 3, 2)
    assert "3.5 ± 6.353 (2 of 3)" in drawn(settings_table(runs, means(runs)))
    assert only(runs).repeats == 2  # its repeat is not whole
    assert "3, 1 diverged" in drawn(settings_table(runs, means(runs)))
    assert [each.diverged for each in means(runs)] == [0, 0, 1]
    found = as_json(runs, means(runs), list(trends(runs, "workers")))
    assert [each["diverged"] for each in found["runs"]].count(True) == 1
    assert "NaN" not in json.dumps(found)


def test_a_weak_test_denies_no_trend() -> None:
    # Two repeats of three values have 36 orders: 2 in 36 at best, from both sides.
    trend = only(along([(1, 2, 3)] * 2))
    assert (trend.least_p, conclusion(trend)) == (pytest.approx(2 / 36), "too few repeats")
    assert only(along([(1, 2, 3)] * 3)).least_p == pytest.approx(2 / 216)
    assert conclusion(only(along([(1, 2)] * 5, ("1", "2")))) == "too few repeats"
    assert conclusion(only(along([(1, 2)] * 6, ("1", "2")))) == "rises"


def test_names_from_a_program_are_escaped() -> None:
    nasty = "[/foo]\x1b[31m"
    result = ResultSummary(nasty, "worker-0", 1.0, None, None, True)
    runs = [RunResult(Point({"a": "1"}, 0), replace(SUMMARY, results=[result]))]
    text = drawn(settings_table(runs, means(runs)))
    assert r"[/foo]\x1b[31m" in text
    assert "\x1b" not in text


def drawn(table: Any) -> str:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_tables_show_means_trends_and_runs_that_are_missing() -> None:
    runs = along([(1, 2, 3), (1, 2, 3.5), (1, 2, 4)])
    runs[-1] = replace(runs[-1], summary=replace(runs[-1].summary, state="failed"))
    text = drawn(settings_table(runs, means(runs)))
    assert "2 of 3" in text
    assert "3.25 ± 3.177" in text
    assert "rises" not in drawn(trends_table(list(trends(runs, "workers"))))
    text = drawn(trends_table(list(trends(along([(1, 2, 3)] * 4), "workers"))))
    assert "metric by workers" in text
    assert "+1.00" in text
    assert "rises" in text


def test_figures_for_a_program() -> None:
    runs = along([(1, 2, 3)] * 2)
    found = json.loads(json.dumps(as_json(runs, means(runs), list(trends(runs, "workers")))))
    assert found["runs"][0]["values"] == {"workers": "1"}
    assert found["runs"][0]["figures"] == {"loss": 1}
    assert found["settings"][2]["means"]["loss"]["value"] == 3
    assert found["trends"][0]["repeats"] == 2
    rows = list(csv.DictReader(io.StringIO(as_csv(runs))))
    assert rows[4] == {
        "run_id": "r", "state": "succeeded", "workers": "2", "repeat": "1", "loss": "2",
    }  # fmt: skip


def test_formats() -> None:
    assert (p_value(0.00004, ".4f"), p_value(0.25, ".4f"), format_mean(None)) == (
        "< 0.0001",
        "0.2500",
        "",
    )
    assert format_mean(mean([1234.5, 1234.5])) == "1,234 ± 0"
