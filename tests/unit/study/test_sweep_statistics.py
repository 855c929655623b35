"""Means, intervals and trends of a sweep, against figures that were worked out by other means."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from lab.base.errors import InputError
from lab.base.formatting import p_value
from lab.base.statistics import mean_of
from lab.cluster.config import load_cluster, with_workers
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.protocol.volume.states import State
from lab.runner.store.summarize import summary_of
from lab.runner.store.summary import ResultSummary
from lab.study.batches import Point, RunResult, combinations
from lab.study.sweep import grid, parse_over
from lab.study.sweep_statistics import (
    as_csv,
    as_json,
    conclusion,
    format_mean,
    means,
    settings_table,
    trends,
    trends_table,
)
from tests.support.specs import run_info

SUMMARY = summary_of(run_info("r", state=State.SUCCEEDED), {}, {})


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


@pytest.mark.parametrize(
    ("rows", "values", "rho", "p", "least_p", "said"),
    [
        # Three repeats of three values: 6 ** 3 orders, from both sides.
        ([(1, 2, 3), (1, 2, 3), (5, 6, 7)], "1 2 4", 1, 2 / 216, 2 / 216, "rises"),
        ([(3, 2, 1), (3, 2, 1), (7, 6, 5)], "1 2 4", -1, 2 / 216, 2 / 216, "falls"),
        # Between the rows the loss differs a hundred times as much as within them.
        ([(100, 101, 102), (1, 2, 3), (300, 301, 302)], "1 2 4", 1, 2 / 216, 2 / 216, "rises"),
        ([(100, 99, 101), (2, 1, 3), (300, 302, 301)], "1 2 4", 0.5, None, 2 / 216, "no trend"),
        # Two repeats have 36 orders.
        ([(1, 2, 3)] * 2, "1 2 4", 1, 2 / 36, 2 / 36, "too few repeats"),
        # Two values, by Wilcoxon's test: six of six differences above 0 are 2 of 64 by chance.
        ([(k, k + 1 + k / 10) for k in range(1, 7)], "1 2", 1, 2 / 64, 2 / 64, "rises"),
        ([(k, k + 1 + k / 10) for k in range(1, 4)], "1 2", 1, 2 / 8, 2 / 8, "too few repeats"),
        # Values count as numbers, not as texts.
        ([(1, 2, 3)] * 3, "9 10 100", 1, 2 / 216, 2 / 216, "rises"),
        # A repeat with a value that is no number does not count.
        ([(1, 2, 3), (1, 2, float("nan")), (1, 2, 4)], "1 2 4", 1, 2 / 36, 2 / 36,
         "too few repeats"),
    ],
)  # fmt: skip
def test_a_trend_and_its_chance(
    rows: list[Any], values: str, rho: float, p: float | None, least_p: float, said: str
) -> None:
    (trend,) = trends(along(rows, values.split()), "workers")
    assert trend.rho == pytest.approx(rho)
    assert p is None or trend.p == pytest.approx(p)
    assert (trend.least_p, conclusion(trend)) == (pytest.approx(least_p), said)


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


def test_tables(snapshot: SnapshotAssertion) -> None:
    runs = along([(1, 2, 3), (1, 2, 3.5), (1, 2, 4)])
    runs[-1] = replace(runs[-1], summary=replace(runs[-1].summary, state="failed"))
    diverged = along([(1, 2, 3), (1, 2, float("nan")), (1, 2, 4)])
    shown = {
        "one failed": drawn(settings_table(runs, means(runs))),
        "one diverged": drawn(settings_table(diverged, means(diverged))),
        "too few": drawn(trends_table(list(trends(runs, "workers")))),
        "enough": drawn(trends_table(list(trends(along([(1, 2, 3)] * 4), "workers")))),
    }
    assert {name: [line.rstrip() for line in text.splitlines()]
            for name, text in shown.items()} == snapshot  # fmt: skip


def test_the_files_of_a_sweep() -> None:
    losses = [(1, 2, 3), (1, 2, math.nan), (1, 2, 4), (1, 2, 5)]
    runs = along(losses)
    runs[0] = replace(runs[0], summary=replace(runs[0].summary, state="failed", reason="why"))
    found = as_json(runs, means(runs), list(trends(runs, "workers")))
    table = [["run_id", "state", "workers", "repeat", "loss"]]
    for run, loss, of_run in zip(runs, chain(*losses), found["runs"], strict=True):
        has_loss, workers = math.isfinite(loss), run.point.values["workers"]
        assert of_run == {
            "run_id": run.summary.run_id,
            "state": run.summary.state,
            "reason": run.summary.reason,
            "diverged": not has_loss,
            "values": {"workers": workers},
            "repeat": run.point.repeat,
            "figures": {"loss": loss} if has_loss else {},
        }
        cells = (run.summary.run_id, run.summary.state, workers, run.point.repeat)
        table.append([*map(str, cells), str(loss) if has_loss else ""])
    assert list(csv.reader(as_csv(runs).splitlines())) == table
    of_4 = {"runs": 4, "of": 4, "diverged": 1, "means": {"loss": asdict(mean_of([3, 4, 5]))}}
    assert [each["runs"] for each in found["settings"]] == [3, 4, 4]
    assert found["settings"][2] == {"values": {"workers": "4"}, **of_4}
    (trend,) = found["trends"]
    p = pytest.approx(2 / 36)
    facts = {"along": "workers", "figure": "loss", "held": {}, "repeats": 2}
    assert trend == {**facts, "rho": pytest.approx(1), "p": p, "least_p": p}
    assert json.dumps(found, allow_nan=False)


def test_formats() -> None:
    values = (p_value(0.00004, ".4f"), p_value(0.25, ".4f"), format_mean(None))
    assert values == ("< 0.0001", "0.2500", "")
    assert format_mean(mean_of([1234.5, 1234.5])) == "1,234 ± 0"


CLUSTERS = Path(__file__).parents[3] / "clusters"
ASYNC = EXPERIMENTS["async"]


def test_quantities_are_read_in_their_order() -> None:
    found = parse_over(" workers = 1, 2,4;learning_rate=0.10,1 ; ")
    assert found == {"workers": ("1", "2", "4"), "learning_rate": ("0.10", "1")}
    assert list(found) == ["workers", "learning_rate"]


@pytest.mark.parametrize("text", ["", ";", "workers", "=1", "workers=", "a=1,,2", "a=1; a=2"])
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="NAME=VALUE,VALUE"):
        parse_over(text)


def test_points_are_grouped_by_workers_then_repeated() -> None:
    points = grid({"learning_rate": ("0.1", "1"), "workers": ("1", "2")}, 2)
    assert [(point.line(), point.repeat) for point in points] == [
        (f"learning_rate={rate} workers={workers}", repeat)
        for workers in (1, 2)
        for repeat in (0, 1)
        for rate in ("0.1", "1")
    ]
    assert (points[0].workers, points[0].flags) == (1, ("--learning_rate=0.1",))
    assert len(combinations(points)) == 4
    assert Point({"batch_size": "5"}, 0).workers is None


def test_workers_take_the_nodes_in_turn() -> None:
    cluster = load_cluster(CLUSTERS / "laptop.yaml")
    assert cluster.sha256  # it is remembered, and must not be handed on
    five = with_workers(cluster, 5)
    assert five.jobs["worker"].on == ("tf2", "tf3", "tf2", "tf3", "tf2")
    assert five.jobs["ps"] == cluster.jobs["ps"]
    assert five.sha256 != cluster.sha256
    assert with_workers(cluster, 2).sha256 == cluster.sha256
    assert with_workers(cluster, 1).jobs["worker"].on == ("tf2",)


def test_workers_that_do_not_fit_are_refused() -> None:
    book = load_cluster(CLUSTERS / "eight-gpus.yaml")
    with pytest.raises(InputError, match="cannot have 9 workers: "):
        with_workers(book, 9)
    with pytest.raises(InputError, match="has no job 'worker'; leave out workers"):
        with_workers(load_cluster(CLUSTERS / "hello.yaml"), 2)


def test_the_speed_of_a_run_is_in_images_if_they_are_known() -> None:
    """Updates of different experiments use different numbers of images."""
    by_steps = replace(SUMMARY, steps_per_s=30.0)
    for summary, speed in (
        (by_steps, {"global steps/s": 30.0}),
        (replace(by_steps, images_per_s=9000.0), {"images/s": 9000.0}),
    ):
        assert RunResult(Point({}, 0), summary).metrics() == speed
