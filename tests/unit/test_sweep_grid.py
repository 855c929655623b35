"""The parameters of a sweep, and its clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

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
        ("learning_rate=0.1 workers=1", 0),
        ("learning_rate=1 workers=1", 0),
        ("learning_rate=0.1 workers=1", 1),
        ("learning_rate=1 workers=1", 1),
        ("learning_rate=0.1 workers=2", 0),
        ("learning_rate=1 workers=2", 0),
        ("learning_rate=0.1 workers=2", 1),
        ("learning_rate=1 workers=2", 1),
    ]
    assert (points[0].workers, points[0].flags) == (1, ("--learning_rate=0.1",))
    assert len(combinations(points)) == 4
    assert Point({"batch_size": "5"}, 0).workers is None


@pytest.mark.parametrize(
    ("over", "fixed", "words"),
    [
        ({"batchsize": ("1",)}, (), "has no flag 'batchsize'; did you mean 'batch_size'?"),
        ({"seed": ("1", "2")}, (), "each repeat has its own seed; leave out seed"),
        ({"batch_size": ("1", "2")}, ("batch_size",), "--batch_size is given, but --over varies"),
        ({"batch_size": ("1", "1")}, (), "batch_size has a value twice"),
        ({"learning_rate": ("1", "1.0")}, (), "learning_rate has a value twice"),
        ({"batch_size": ("0",)}, (), "batch_size: '0' is not a whole number from 1"),
        ({"model": ("cnn",)}, (), "model: 'cnn' is not one of softmax, mlp"),
        ({"workers": ("0",)}, (), "workers='0' is not a number of workers; give 1 to 10,000"),
        ({"workers": ("01",)}, (), "workers='01' is not a number of workers"),
        ({"workers": ("99999999",)}, (), "is not a number of workers"),
        ({"\x1b[31m": ("1",)}, (), r"has no flag '\\x1b[31m'"),
    ],
)
def test_invalid_parameters_are_refused(
    over: dict[str, tuple[str, ...]], fixed: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_over(over, ASYNC, fixed)
    assert words in str(caught.value)


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
