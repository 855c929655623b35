"""Experiments through `lab run`, each held against a number that its mechanism determines."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lab.task.agent.echo import TensorFlowLines
from lab.task.sdk.data import load_mnist
from tests import oracle
from tests.support.agents import processes_with
from tests.support.commands import ROOT, lab

pytestmark = pytest.mark.tensorflow

SEED = 7
# Sums of float32 in another order: the difference grows with the number of updates.
assert_close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)


@dataclass(frozen=True)
class Project:
    """A project on one of the backends."""

    path: Path
    backend: str

    def run(self, experiment: str, cluster: str, *flags: str) -> dict[str, Any]:
        """The summary of a run, which must succeed."""
        arguments = ("--backend", self.backend, "--gpus", "none")
        where = ("--cluster", f"clusters/{cluster}.yaml", "--json")
        out, _ = lab(self.path, "run", experiment, *arguments, *where, *flags)
        summary: dict[str, Any] = json.loads(out.splitlines()[-1])
        assert summary["state"] == "succeeded"
        return summary

    def home(self) -> Path:
        """The directory of the only run."""
        (found,) = (self.path / "runs").iterdir()
        return found

    def records(self, task: str) -> list[dict[str, Any]]:
        text = (self.home() / f"tasks/{task}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def messages(self, task: str) -> list[str]:
        return [each["message"] for each in self.records(task) if each["kind"] == "event"]

    def log(self, task: str) -> list[str]:
        lines = (self.home() / f"logs/{task}.log").read_bytes().splitlines()
        of_tensorflow = TensorFlowLines()
        return [line.decode() for line in lines if not of_tensorflow.has(line)]

    def losses(self, task: str) -> list[float]:
        return [each["loss"] for each in self.records(task) if each["kind"] == "step"]


@pytest.fixture(params=["local"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    if request.param == "compose":
        request.getfixturevalue("image")
    for name in ("scripts", "clusters"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "data").mkdir()
    yield Project(tmp_path, request.param)
    left = processes_with(str(tmp_path))
    assert not left, f"left behind: {left}"


in_containers_too = pytest.mark.parametrize(
    "project", ["local", pytest.param("compose", marks=pytest.mark.engine)], indirect=True
)


def results(summary: dict[str, Any]) -> dict[str, float]:
    assert all(each["as_expected"] for each in summary["results"])
    return {each["name"]: each["value"] for each in summary["results"]}


@in_containers_too
def test_servers_greet_each_other_and_end(project: Project) -> None:
    summary = project.run("hello", "hello")
    greetings = [f"hello from /job:local/task:{index}" for index in range(3)]
    for task in ("local-0", "local-1", "local-2"):
        assert project.log(task) == greetings
    found = [each for each in summary["results"] if each["name"] == "tasks that greeted"]
    assert [(each["task"], each["value"]) for each in found] == [
        ("local-0", 3),
        ("local-1", 3),
        ("local-2", 3),
    ]
    assert {task["state"] for task in summary["tasks"]} == {"succeeded"}


def test_a_cluster_of_one_needs_no_list(project: Project) -> None:
    one = "version: 1\nname: one\nnodes: {tf1: {}}\njobs: {local: {on: [tf1]}}\n"
    (project.path / "clusters/one.yaml").write_text(one)
    assert results(project.run("hello", "one")) == {"tasks that greeted": 1}
    assert project.log("local-0") == ["hello from /job:localhost/task:0"]


@in_containers_too
def test_a_client_trains_a_line_on_a_server_that_is_not_its_master(project: Project) -> None:
    found = results(project.run("linear", "client"))
    assert found == {"w": pytest.approx(2, abs=0.05), "b": pytest.approx(10, abs=0.1)}
    output = project.messages("client-0")
    assert "its master is grpc://tf2:2222" in output
    (ran,) = [each for each in output if each.startswith("ran:")]
    assert ran.count("on /job:worker/task:0/") == 2
    assert "task:1" not in ran


def reference(
    model: str, updates: int, rate: float, *, batch_size: int = 100, workers: int = 1
) -> list[float]:
    """The losses of the NumPy oracle on the joined batches of these workers."""
    train = load_mnist().train
    streams = [oracle.worker_batches(train, SEED, index, batch_size) for index in range(workers)]
    batches = oracle.joined(streams)
    steps = oracle.train(oracle.initial_parameters(model, SEED), batches, rate=rate)
    return [step.loss for step in itertools.islice(steps, updates)]


@in_containers_too
def test_replicas_in_one_graph_are_one_process_with_the_joined_batch(project: Project) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    summary = project.run("in-graph", "in-graph", *flags)
    assert results(summary)["apart from one process"] < 1e-5
    steps = [each for each in project.records("client-0") if each["kind"] == "step"]
    assert [each["global_step"] for each in steps] == list(range(1, 31))
    assert_close([each["loss"] for each in steps], reference("softmax", 30, 0.01, batch_size=200))


@in_containers_too
def test_a_model_on_two_tasks_is_the_same_model(project: Project) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    summary = project.run("model-parallel", "client", *flags)
    assert results(summary)["apart from one process"] < 1e-5
    steps = [each for each in project.records("client-0") if each["kind"] == "step"]
    assert_close([each["loss"] for each in steps], reference("mlp", 30, 0.1))
    (ran,) = [each for each in project.messages("client-0") if each.startswith("ran:")]
    assert ran.startswith("ran: MatMul on /job:worker/task:0/")
    assert ", MatMul_1 on /job:worker/task:1/" in ran


@in_containers_too
def test_operations_land_where_they_are_sent_and_strategies_spread_bytes(project: Project) -> None:
    found = results(project.run("placement", "two-ps"))
    # Five that were sent by hand; and four variables, what is done with each, and their sum.
    assert found["where they should be"] == 5 + 4 + 4 + 1
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
    rows = (project.home() / "placement-0.csv").read_text().splitlines()
    # The device setter takes the servers in turn.
    for index, name in enumerate(("weights1", "biases1", "weights2", "biases2")):
        server, worker = f"/job:ps/task:{index % 2}", "/job:worker/task:0"
        assert f"replica_device_setter,{name},{server},{server}/device:CPU:0" in rows
        norm = f"replica_device_setter,norm_{name}/Squeeze"
        assert f"{norm},{worker},{worker}/device:CPU:0" in rows
    assert "tf.device,part,/job:ps,/job:ps/task:0/device:CPU:0" in rows
    assert "a GPU that is not there,wish,/job:worker/task:0/device:GPU:99,refused" in rows
    # The program prints the same table.
    assert [line.split() for line in project.log("worker-0")] == [
        row.replace(",", " ").split() for row in rows
    ]


def test_one_parameter_server(project: Project) -> None:
    found = results(project.run("placement", "laptop"))
    assert found["where they should be"] == 14
    total = 4 * (784 * 500 + 500 + 500 * 10 + 10)
    assert [found[f"bytes on ps-0, {how}"] for how in ("round robin", "greedy", "by layer")] == [
        total,
        total,
        total,
    ]


def test_towers_average_to_the_joined_batchs_gradient(project: Project) -> None:
    import tensorflow as tf  # noqa: PLC0415  (in this test alone)

    kept = project.path / "kept.tfrecord"
    flags = ("--global_steps", "30", "--towers", "3", "--records", str(kept), "--seed", "7")
    found = results(project.run("towers", "one-host", *flags))
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
    saved = {path.name for path in (project.home() / "checkpoints").glob("*.index")}
    assert saved == {"towers-0.index", "towers-29.index"}
    board = EventAccumulator(str(project.home() / "tb/worker-0"), {"histograms": 0}).Reload()
    parts = {"weights1", "biases1", "weights2", "biases2"}
    for kind, name in itertools.product(("variables", "gradients"), parts):
        steps = [event.step for event in board.Histograms(f"{kind}/{name}")]
        assert steps == [0, 10, 20]
    assert board.Histograms("gradients/biases2")[0].histogram_value.num == 10
    lines = (project.home() / "logs/worker-0.log").read_text().splitlines()
    rates = [line for line in lines if line.endswith(" examples/s")]
    assert [line.partition(":")[0] for line in rates] == ["step 10", "step 20", "step 30"]


def test_mirrored_replicas_stay_equal_and_learn(project: Project) -> None:
    flags = ("--epochs", "5", "--seed", str(SEED), "--record_every", "1")
    summary = project.run("mirrored", "one-host", *flags)
    assert results(summary) == {"replicas compared": 2, "replicas that differ": 0}
    assert summary["tasks"][0]["accuracy"] >= 0.97
    # At this rate rounding errors double with every step.
    assert_close(project.losses("worker-0")[:10], reference("mlp", 10, 0.8, workers=2))


@in_containers_too
def test_all_workers_end_with_the_same_parameters(project: Project) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    summary = project.run("multiworker", "workers", *flags, "--learning_rate", "0.1")
    assert results(summary) == {"replicas compared": 2, "replicas that differ": 0}
    expected = reference("mlp", 30, 0.1, workers=2)
    for task in ("worker-0", "worker-1"):
        assert_close(project.losses(task), expected)
    assert (project.home() / "model/model.npz").is_file()


@in_containers_too
def test_a_coordinator_survives_a_killed_worker(project: Project) -> None:
    flags = ("--global_steps", "1500", "--record_every", "50")
    fault = ("--fault", "kill worker-1 after 300 steps")
    summary = project.run("coordinator", "coordinator", *flags, *fault)
    # A step of a killed worker may be made twice; at most one was under way there.
    assert 1500 <= results(summary)["steps counted"] <= 1501
    attempts = {task["task"]: task["attempts"] for task in summary["tasks"]}
    assert attempts == {"chief-0": 1, "ps-0": 1, "worker-0": 1, "worker-1": 2}


@in_containers_too
def test_an_evaluator_follows_the_checkpoints_to_the_last(project: Project) -> None:
    summary = project.run("evaluator", "evaluator", "--global_steps", "2500", "--seed", "7")
    curve = [
        (each["global_step"], each["accuracy"])
        for each in project.records("evaluator-0")
        if each["kind"] == "eval"
    ]
    assert len(curve) == results(summary)["checkpoints evaluated"] >= 2
    assert curve == sorted(curve)
    step, accuracy = curve[-1]
    assert (step, accuracy) == (2500, pytest.approx(summary["accuracy"], abs=1e-4))
    assert curve[0][1] < accuracy


@in_containers_too
@pytest.mark.parametrize("experiment", ["async-mlp", "sync-mlp"])
def test_the_blogs_model_trains(project: Project, experiment: str) -> None:
    flags = ("--global_steps", "500", "--seed", str(SEED), "--record_every", "1")
    summary = project.run(experiment, "laptop", *flags)
    assert (summary["global_step"], summary["updates_conserved"]) == (500, True)
    workers = 2 if experiment == "sync-mlp" else 1
    rate = 0.8 if experiment == "sync-mlp" else 0.01
    expected = reference("mlp", 500, rate, workers=workers)
    # One worker may end long before the other.
    trained = [
        each["loss"]
        for worker in ("worker-0", "worker-1")
        for each in project.records(worker)
        if each["kind"] == "step" and each["global_step"] > 400
    ]
    # Other batches of the same training: single ones scatter by a third, a hundred by a tenth.
    assert np.mean(trained) == pytest.approx(np.mean(expected[-50:]), rel=0.15)


@in_containers_too
def test_staleness_equals_the_number_of_other_workers(project: Project) -> None:
    # Even on a busy machine, the others make their steps while a worker waits this long.
    flags = ("--global_steps", "120", "--seed", str(SEED), "--record_every", "1", "--pause", "0.1")
    summary = project.run("staleness", "book", *flags)
    assert (summary["global_step"], summary["updates_conserved"]) == (120, True)
    told = [
        each["staleness"]
        for index in range(3)
        for each in project.records(f"worker-{index}")
        if each["kind"] == "step"
    ]
    assert len(told) == 120
    found = results(summary)
    assert found["staleness"] == pytest.approx(sum(told) / 120)
    assert sum(task["staleness_sum"] or 0 for task in summary["tasks"]) == sum(told)
    assert sum(task["staleness_steps"] or 0 for task in summary["tasks"]) == 120
    assert 1 <= found["staleness"] <= 2
    # The book's rate barely moves the loss of a unit normal start in so few steps; this one does.
    assert found["test loss"] < 3


def test_many_workers_differ_from_few(project: Project) -> None:
    over = ("--over", "workers=1,8; learning_rate=0.1,1", "--repeats", "1", "--seed", str(SEED))
    arguments = (
        "--backend",
        "local",
        "--gpus",
        "none",
        "--cluster",
        "clusters/laptop.yaml",
        "--json",
    )
    flags = ("--global_steps", "150", "--pause", "0.06")
    out, _ = lab(project.path, "sweep", "staleness", *arguments, *over, *flags)
    found = {
        (each["values"]["workers"], each["values"]["learning_rate"]): each["figures"]
        for each in json.loads(out)["runs"]
    }
    assert found["1", "1"]["staleness"] == found["1", "0.1"]["staleness"] == 0
    assert found["8", "1"]["staleness"] > 3.5
    # The same steps in NumPy, with gradients that are 5 to 7 updates old: at the wide rate a loss
    # of 0.8 becomes 1.7 to 6.6, at the small one 2.8 stays 2.8.
    assert found["8", "1"]["test loss"] > 1.5 * found["1", "1"]["test loss"]
    assert found["8", "0.1"]["test loss"] == pytest.approx(found["1", "0.1"]["test loss"], rel=0.1)
