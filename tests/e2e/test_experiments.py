"""Experiments through `lab run`, each held against a number that its mechanism determines."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.task.data import load_mnist
from tests import oracle
from tests.agents import processes_with
from tests.commands import ROOT, lab

pytestmark = pytest.mark.tensorflow

SEED = 7
# Sums of float32 in another order: the difference grows with the number of updates.
assert_close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    for name in ("scripts", "clusters", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    yield tmp_path
    left = processes_with(str(tmp_path))
    assert not left, f"left behind: {left}"


def run(project: Path, experiment: str, cluster: str, *flags: str) -> dict[str, Any]:
    """The summary of a run on plain processes, which has to succeed."""
    words = ("--backend", "local", "--gpus", "none", "--cluster", f"clusters/{cluster}.yaml")
    out, _ = lab(project, "run", experiment, *words, "--json", *flags)
    summary: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert summary["state"] == "succeeded"
    return summary


def records(project: Path, task: str) -> list[dict[str, Any]]:
    (path,) = project.glob(f"runs/*/tasks/{task}.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def results(summary: dict[str, Any]) -> dict[str, float]:
    assert all(each["as_expected"] for each in summary["results"])
    return {each["name"]: each["value"] for each in summary["results"]}


def messages(project: Path, task: str) -> list[str]:
    return [each["message"] for each in records(project, task) if each["kind"] == "event"]


def losses(project: Path, task: str) -> list[float]:
    return [each["loss"] for each in records(project, task) if each["kind"] == "step"]


def test_servers_greet_each_other_and_end(project: Path) -> None:
    summary = run(project, "hello", "hello")
    greetings = [f"hello from /job:local/task:{index}" for index in range(3)]
    for task in ("local-0", "local-1", "local-2"):
        assert [each for each in messages(project, task) if "hello" in each] == greetings
    found = [each for each in summary["results"] if each["name"] == "tasks that greeted"]
    assert [(each["task"], each["value"]) for each in found] == [
        ("local-0", 3),
        ("local-1", 3),
        ("local-2", 3),
    ]
    assert {task["state"] for task in summary["tasks"]} == {"succeeded"}


def test_a_client_trains_a_line_on_a_server_that_is_not_its_master(project: Path) -> None:
    found = results(run(project, "linear", "client"))
    assert found == {"w": pytest.approx(2, abs=0.05), "b": pytest.approx(10, abs=0.1)}
    said = messages(project, "client-0")
    assert "its master is grpc://tf2:2222" in said
    (ran,) = [each for each in said if each.startswith("ran:")]
    assert ran.count("on /job:worker/task:0/") == 2
    assert "task:1" not in ran


def reference(
    model: str, updates: int, rate: float, *, batch_size: int = 100, workers: int = 1
) -> list[float]:
    """The losses of the NumPy oracle on the joined batches of so many workers."""
    train = load_mnist().train
    streams = [oracle.worker_batches(train, SEED, index, batch_size) for index in range(workers)]
    batches = oracle.joined(streams)
    steps = oracle.train(oracle.initial_parameters(model, SEED), batches, rate=rate)
    return [step.loss for step in itertools.islice(steps, updates)]


def test_replicas_in_one_graph_are_one_process_with_the_joined_batch(project: Path) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    summary = run(project, "in-graph", "in-graph", *flags)
    assert results(summary)["apart from one process"] < 1e-5
    steps = [each for each in records(project, "client-0") if each["kind"] == "step"]
    assert [each["global_step"] for each in steps] == list(range(1, 31))
    assert_close([each["loss"] for each in steps], reference("softmax", 30, 0.01, batch_size=200))


def test_a_model_on_two_tasks_is_the_same_model(project: Path) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    summary = run(project, "model-parallel", "client", *flags)
    assert results(summary)["apart from one process"] < 1e-5
    steps = [each for each in records(project, "client-0") if each["kind"] == "step"]
    assert_close([each["loss"] for each in steps], reference("mlp", 30, 0.1))
    (ran,) = [each for each in messages(project, "client-0") if each.startswith("ran:")]
    assert ran.startswith("ran: MatMul on /job:worker/task:0/")
    assert ", MatMul_1 on /job:worker/task:1/" in ran


def test_operations_land_where_they_are_sent_and_strategies_spread_bytes(project: Path) -> None:
    found = results(run(project, "placement", "two-ps"))
    assert found["where they should be"] == 6
    spread = {name: value for name, value in found.items() if name.startswith("bytes")}
    # 784 x 500 and 500 x 10 float32 numbers, and a bias for each of 500 and 10.
    first, second = (1_568_000, 2_000), (20_000, 40)
    assert spread == {
        "bytes on ps-0, round robin": first[0] + second[0],
        "bytes on ps-1, round robin": first[1] + second[1],
        "bytes on ps-0, greedy": first[0],
        "bytes on ps-1, greedy": first[1] + sum(second),
        "bytes on ps-0, by layer": sum(first),
        "bytes on ps-1, by layer": sum(second),
    }
    (table,) = project.glob("runs/*/placement-0.csv")
    rows = table.read_text().splitlines()
    assert "tf.device,part,/job:ps/task:0/device:CPU:0" in rows
    assert "a GPU that is not there,wish,refused" in rows


def test_towers_average_to_the_joined_batchs_gradient(project: Path) -> None:
    import tensorflow as tf  # noqa: PLC0415  (in this test alone)

    kept = project / "kept.tfrecord"
    flags = ("--global_steps", "30", "--towers", "3", "--records", str(kept), "--seed", "7")
    found = results(run(project, "towers", "one-host", *flags))
    assert found["apart from the joined batch"] < 1e-5
    assert found["examples a second"] > 0
    serialized = list(tf.data.TFRecordDataset(str(kept)).as_numpy_iterator())
    train = load_mnist().train
    assert len(serialized) == len(train)
    features = tf.train.Example.FromString(serialized[9]).features.feature
    assert set(features) == {"image_raw", "pixels", "label"}
    assert features["image_raw"].bytes_list.value[0] == train.pixels[9].tobytes()
    assert list(features["pixels"].int64_list.value) == [784]
    assert list(features["label"].int64_list.value) == [train.labels[9]]
    (home,) = (project / "runs").iterdir()
    saved = {path.name for path in (home / "checkpoints").glob("*.index")}
    assert saved == {"towers-0.index", "towers-29.index"}
    assert list((home / "tb").iterdir())


def test_mirrored_replicas_stay_equal_and_learn(project: Path) -> None:
    flags = ("--epochs", "5", "--seed", str(SEED), "--record_every", "1")
    summary = run(project, "mirrored", "one-host", *flags)
    assert results(summary) == {"replicas compared": 2, "replicas that differ": 0}
    assert summary["tasks"][0]["accuracy"] >= 0.97
    # At this rate rounding errors double with every step.
    assert_close(losses(project, "worker-0")[:10], reference("mlp", 10, 0.8, workers=2))


def test_all_workers_end_with_the_same_parameters(project: Path) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    summary = run(project, "multiworker", "workers", *flags, "--learning_rate", "0.1")
    assert results(summary) == {"replicas compared": 2, "replicas that differ": 0}
    expected = reference("mlp", 30, 0.1, workers=2)
    for task in ("worker-0", "worker-1"):
        assert_close(losses(project, task), expected)
    (home,) = (project / "runs").iterdir()
    assert (home / "model/model.npz").is_file()


def test_a_coordinator_survives_the_death_of_a_worker(project: Path) -> None:
    flags = ("--global_steps", "1500", "--record_every", "50", "--on-failure", "restart")
    fault = ("--fault", "kill worker-1 after 300 steps")
    summary = run(project, "coordinator", "coordinator", *flags, *fault)
    # A step whose worker died may be made twice, and no more than one was under way there.
    assert 1500 <= results(summary)["steps counted"] <= 1501
    attempts = {task["task"]: task["attempts"] for task in summary["tasks"]}
    assert attempts == {"chief-0": 1, "ps-0": 1, "worker-0": 1, "worker-1": 2}


def test_an_evaluator_follows_the_checkpoints_to_the_last(project: Path) -> None:
    summary = run(project, "evaluator", "evaluator", "--global_steps", "2500", "--seed", "7")
    curve = [
        (each["global_step"], each["accuracy"])
        for each in records(project, "evaluator-0")
        if each["kind"] == "eval"
    ]
    assert len(curve) == results(summary)["checkpoints evaluated"] >= 2
    assert curve == sorted(curve)
    step, accuracy = curve[-1]
    assert (step, accuracy) == (2500, pytest.approx(summary["accuracy"], abs=1e-4))
    assert curve[0][1] < accuracy


@pytest.mark.parametrize("experiment", ["async-mlp", "sync-mlp"])
def test_the_blogs_model_trains(project: Path, experiment: str) -> None:
    summary = run(project, experiment, "laptop", "--global_steps", "500", "--seed", str(SEED))
    assert (summary["global_step"], summary["updates_conserved"]) == (500, True)
    workers = 2 if experiment == "sync-mlp" else 1
    rate = 0.8 if experiment == "sync-mlp" else 0.01
    (*_, loss) = reference("mlp", 500, rate, workers=workers)
    trained = [task["loss"] for task in summary["tasks"] if task["job_name"] == "worker"]
    # Single batches scatter; the oracle's last one is of the same training.
    assert trained == pytest.approx([loss] * 2, rel=0.6)
