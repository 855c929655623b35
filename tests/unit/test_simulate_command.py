"""`lab simulate`: its table, its JSON, and its refusals."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from lab.cli import main
from lab.simulation import MEASURED, Box, Shape, Way, simulate

CLUSTER = """\
version: 1
name: mine
nodes: {tf1: {}, tf2: {}}
jobs: {ps: {on: [tf1]}, worker: {on: [tf2, tf2, tf2]}}
"""


def output(capsys: pytest.CaptureFixture[str], line: str) -> Any:
    assert main(["simulate", *shlex.split(line), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_table_has_a_row_for_each_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split("simulate async --workers 1,3 --ps 1,2 --cores 4")) == 0
    out, err = capsys.readouterr()
    rows = [line.split() for line in out.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:2] for row in rows] == [["1", "1"], ["3", "1"], ["1", "2"], ["3", "2"]]
    assert "stale" in out
    assert err.startswith("predicted, not measured")
    assert main(shlex.split("simulate multiworker --workers 2 --cores 4")) == 0
    out = capsys.readouterr().out
    assert "stale" not in out
    assert " ps " not in out


def test_figures_are_the_simulations(capsys: pytest.CaptureFixture[str]) -> None:
    found = output(capsys, "sync --workers 2 --ps 3 --cores 5 --batch-size 10")
    (row,) = found["predictions"]
    expected = simulate(Shape(Way.SYNC, 2, 3, 10), MEASURED, Box(5))
    assert row["steps_per_s"] == pytest.approx(expected.steps_per_s)
    alone = simulate(Shape(Way.SYNC, 1, 3, 10), MEASURED, Box(5))
    assert row["efficiency"] == pytest.approx(expected.efficiency(alone))
    assert row["images_per_s"] == pytest.approx(20 * row["steps_per_s"])
    assert row["least_bytes"] == 4 * 31_400
    assert row["ps_cores"] == pytest.approx(row["ps_cpu_s"] * row["steps_per_s"] / 3)
    assert found["box"] == {
        "cores": 5,
        "nodes": 1,
        "latency_s": 0.0,
        "bandwidth": None,
        "ps_on": [],
        "worker_on": [],
    }


def test_a_network_puts_each_task_on_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    found = output(capsys, "async --workers 4 --network 100Gbit --latency 5us --cores 2 --step 2ms")
    assert found["box"] == {
        "cores": 2,
        "nodes": 0,
        "latency_s": 5e-6,
        "bandwidth": 12.5e9,
        "ps_on": [],
        "worker_on": [],
    }
    assert found["costs"]["device_s"] == 2e-3
    slow = output(capsys, "async --workers 4 --network 10mbit --cores 2 --step 2ms")
    assert slow["predictions"][0]["steps_per_s"] < found["predictions"][0]["steps_per_s"] / 2


def test_a_config_gives_the_tasks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    found = output(capsys, f"async --cluster {file} --cores 2")
    assert [(row["workers"], row["ps"]) for row in found["predictions"]] == [(3, 1)]
    assert found["box"]["nodes"] == 1  # without a network all nodes share this host
    found = output(capsys, f"multiworker --cluster {file} --network 1gbit --cores 2")
    assert [(row["workers"], row["ps"]) for row in found["predictions"]] == [(3, 0)]
    assert (found["box"]["nodes"], found["box"]["worker_on"]) == (2, [1, 1, 1])


def test_tasks_are_on_the_nodes_of_a_config(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    line = f"async --cluster {file} --network 1mbit --cores 8"
    found = output(capsys, line)
    assert (found["box"]["ps_on"], found["box"]["worker_on"]) == ([0], [1, 1, 1])
    (row,) = found["predictions"]
    host = Box(8, 2, 125e3, 20e-6, ps_on=(0,), worker_on=(1, 1, 1))
    expected = simulate(Shape(Way.ASYNC, 3, 1), MEASURED, host)
    assert row["steps_per_s"] == pytest.approx(expected.steps_per_s)
    # On the server's node a worker's bytes do not cross the slow network.
    file.write_text(CLUSTER.replace("[tf2, tf2, tf2]", "[tf1, tf1, tf1]"))
    (beside,) = output(capsys, line)["predictions"]
    assert beside["link_busy"] == 0
    assert beside["steps_per_s"] > 10 * row["steps_per_s"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("ring", "way: 'ring' is not async, sync or multiworker"),
        (
            "async --workers 1,0",
            "--workers: '1,0' is not whole numbers from 1 to 512, such as 1,8,64",
        ),
        (
            "async --workers 513",
            "--workers: '513' is not whole numbers from 1 to 512, such as 1,8,64",
        ),
        ("async --ps x", "--ps: 'x' is not whole numbers from 1 to 64, such as 1,8,64"),
        ("async --network 100", "--network: '100' is not a rate such as 100gbit, or 25gbit"),
        ("async --network 0gbit", "--network: '0gbit' is not a rate such as 100gbit, or 25gbit"),
        ("async --step 2", "--step: '2' is not a time such as 2ms, or 20us"),
        ("async --step 0ms", "--step: '0ms' is not a time such as 2ms, or 20us"),
        ("multiworker --ps 1", "multiworker has no parameter servers; leave out --ps"),
        ("async --latency 5us", "--latency needs a network; add --network, or leave out --latency"),
        (
            "async --cluster cluster.yaml --workers 2",
            "--cluster already sets the number of tasks; leave out --workers and --ps",
        ),
        (
            "async --workers 1,2,3,4,5,6,7,8,9 --ps 1,2,3,4,5,6,7,8",
            "9 times 8 trainings are too many; use 64 or fewer",
        ),
        (
            "async --ps 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
            "4 times 17 trainings are too many; use 64 or fewer",
        ),
    ],
)
def test_unsupported_input_is_refused(
    capsys: pytest.CaptureFixture[str], line: str, error: str
) -> None:
    assert main(["simulate", *shlex.split(line)]) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


def test_a_config_without_the_jobs_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER.replace("ps: {on: [tf1]}, ", ""))
    assert main(["simulate", "sync", "--cluster", str(file)]) == 2
    assert capsys.readouterr().err == (
        f"error: {file} has no job 'ps', which sync needs;"
        " use another config, or --workers and --ps\n"
    )
