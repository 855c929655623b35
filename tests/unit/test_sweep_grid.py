"""The parameters of a sweep, and its clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.config import load_cluster
from lab.errors import InputError
from lab.sweep.grid import Point, check_over, combinations, grid, parse_over, with_workers
from lab.task.protocol.experiments import EXPERIMENTS

CLUSTERS = Path(__file__).parents[2] / "clusters"
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


@pytest.mark.parametrize(
    "over",
    [
        "batchsize=1",
        "seed=1,2",
        "batch_size=1,1",
        "learning_rate=1,1.0",
        "model=cnn",
        "workers=0",
        "\x1b[31m=1",
    ],
)
def test_invalid_parameters_are_refused(over: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(InputError) as caught:
        check_over(parse_over(over), ASYNC, ("epochs",))
    assert str(caught.value) == snapshot


def test_valid_parameters() -> None:
    check_over({"workers": ("1", "10000"), "batch_size": ("1", "2")}, ASYNC, ("learning_rate",))


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
