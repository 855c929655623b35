"""Experiments through `lab run`, each held against a number that its mechanism determines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lab.protocol.mnist import load_mnist
from tests import oracle
from tests.support.agents import processes_with
from tests.support.commands import ROOT, lab, python
from tests.support.experiments import Project, make_project
from tests.support.shown import assert_shows
from tests.support.trained import SEED, assert_close

pytestmark = pytest.mark.tensorflow


@pytest.fixture(params=["local"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    if request.param == "compose":
        request.getfixturevalue("image")
    yield make_project(tmp_path, request.param)
    assert processes_with(str(tmp_path)) == []


def test_servers_greet_each_other_and_end(project: Project) -> None:
    ran = project.run("hello", "hello")
    greetings = [f"hello from /job:local/task:{index}" for index in range(3)]
    tasks = ("local-0", "local-1", "local-2")
    assert [ran.log(task) for task in tasks] == [greetings] * 3
    found = [(each["task"], each["name"], each["value"]) for each in ran.summary["results"]]
    assert found == [(task, "tasks that greeted", 3) for task in tasks]
    assert {*ran.states.values()} == {"succeeded"}
    printed, _ = lab(project.path, "logs", "last")
    assert_shows("docs/tutorials/lessons/hello.md", "local-0", printed)


def test_the_first_program_needs_nothing_of_lab_and_its_lines_are_read(project: Project) -> None:
    ran = project.run("scripts/first_async.py", "laptop")
    assert {*ran.states.values()} == {"succeeded"}
    assert ran.summary["global_step"] == 2 * 1000
    for task in ("worker-0", "worker-1"):
        assert len(ran.losses(task)) == 10
        assert ran.losses(task)[-1] == pytest.approx(0.01, abs=0.01)  # The noise's variance.
    printed, _ = lab(project.path, "logs", "last")
    page = "docs/tutorials/lessons/first.md"
    assert_shows(page, "worker-0", printed, figures=False)


def test_a_client_trains_a_line_on_a_server_that_is_not_its_master(project: Project) -> None:
    ran = project.run("linear", "client")
    assert ran.results == {"w": pytest.approx(2, abs=0.05), "b": pytest.approx(10, abs=0.1)}
    output = ran.messages("client-0")
    assert "its master is grpc://tf2:2222" in output
    (places,) = [each for each in output if each.startswith("ran:")]
    assert places.count("on /job:worker/task:0/") == 2
    assert "task:1" not in places


def reference(model: str, updates: int, rate: float, *, batch_size: int = 100) -> list[float]:
    """The losses of the NumPy oracle; the batch is that of all replicas together."""
    batches = oracle.worker_batches(load_mnist().train, SEED, 0, batch_size)
    steps = oracle.train(oracle.initial_parameters(model, SEED), batches, rate=rate)
    return [step.loss for step in itertools.islice(steps, updates)]


def test_replicas_in_one_graph_are_one_process_with_the_joined_batch(project: Project) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    ran = project.run("in-graph", "in-graph", *flags)
    assert ran.results["apart from one process"] < 1e-5
    assert [each["global_step"] for each in ran.records("client-0", "step")] == list(range(1, 31))
    assert_close(ran.losses("client-0"), reference("softmax", 30, 0.01, batch_size=200))


def test_a_model_on_two_tasks_is_the_same_model(project: Project) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    ran = project.run("model-parallel", "client", *flags)
    assert ran.results["apart from one process"] < 1e-5
    assert_close(ran.losses("client-0"), reference("mlp", 30, 0.1))
    (places,) = [each for each in ran.messages("client-0") if each.startswith("ran:")]
    assert places.startswith("ran: MatMul on /job:worker/task:0/")
    assert ", MatMul_1 on /job:worker/task:1/" in places


def test_operations_land_where_they_are_sent_and_strategies_spread_bytes(project: Project) -> None:
    ran = project.run("placement", "two-ps")
    found = ran.results
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
    rows = (ran.path / "placement-0.csv").read_text().splitlines()
    # The device setter takes the servers in turn.
    for index, name in enumerate(("weights1", "biases1", "weights2", "biases2")):
        server, worker = f"/job:ps/task:{index % 2}", "/job:worker/task:0"
        assert f"replica_device_setter,{name},{server},{server}/device:CPU:0" in rows
        norm = f"replica_device_setter,norm_{name}/Squeeze"
        assert f"{norm},{worker},{worker}/device:CPU:0" in rows
    assert "tf.device,part,/job:ps,/job:ps/task:0/device:CPU:0" in rows
    assert "a GPU that is not there,wish,/job:worker/task:0/device:GPU:99,refused" in rows
    # The program prints the same table.
    assert [line.split() for line in ran.log("worker-0")] == [
        row.replace(",", " ").split() for row in rows
    ]


BUFFERED_LINE = """
import ctypes
from traces import placement_log

with placement_log() as placed:
    ctypes.CDLL(None).puts(b"whole: (AddV2): /job:ps/replica:0/task:0/device:CPU:0")
assert placed == {"whole": "/job:ps/task:0/device:CPU:0"}, placed
"""


def test_the_placement_log_is_whole_although_c_buffers_its_lines() -> None:
    """Without an agent, Python does not run unbuffered."""
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT / 'scripts'}", "CUDA_VISIBLE_DEVICES": "-1"}
    done = python("-c", BUFFERED_LINE, env=environ)
    assert done.returncode == 0, done.stderr[-2000:]


def test_towers_average_to_the_joined_batchs_gradient(project: Project) -> None:
    import tensorflow as tf  # noqa: PLC0415  (in this test alone)

    kept = project.path / "kept.tfrecord"
    flags = ("--global_steps", "30", "--towers", "3", "--records", str(kept), "--seed", "7")
    ran = project.run("towers", "one-host", *flags)
    assert ran.results["apart from the joined batch"] < 1e-5
    assert ran.results["examples a second"] > 0
    serialized = list(tf.data.TFRecordDataset(str(kept)).as_numpy_iterator())
    train = load_mnist().train
    assert len(serialized) == len(train)
    features = tf.train.Example.FromString(serialized[9]).features.feature
    assert set(features) == {"image_raw", "pixels", "label"}
    assert features["image_raw"].bytes_list.value[0] == train.pixels[9].tobytes()
    assert list(features["pixels"].int64_list.value) == [784]
    assert list(features["label"].int64_list.value) == [train.labels[9]]
    saved = {path.name for path in (ran.path / "checkpoints").glob("*.index")}
    assert saved == {"towers-0.index", "towers-29.index"}
    board = EventAccumulator(str(ran.path / "tb/worker-0"), {"histograms": 0}).Reload()
    parts = {"weights1", "biases1", "weights2", "biases2"}
    for kind, name in itertools.product(("variables", "gradients"), parts):
        steps = [event.step for event in board.Histograms(f"{kind}/{name}")]
        assert steps == [0, 10, 20]
    assert board.Histograms("gradients/biases2")[0].histogram_value.num == 10
    rates = [line for line in ran.log("worker-0") if line.endswith(" examples/s")]
    assert [line.partition(":")[0] for line in rates] == ["step 10", "step 20", "step 30"]


def test_mirrored_replicas_stay_equal_and_learn(project: Project) -> None:
    flags = ("--epochs", "1", "--seed", str(SEED), "--record_every", "1")
    ran = project.run("mirrored", "one-host", *flags)
    assert ran.results == {"replicas compared": 2, "replicas that differ": 0}
    assert ran.summary["tasks"][0]["accuracy"] >= 0.93
    # At this rate rounding errors double with every step.
    assert_close(ran.losses("worker-0")[:10], reference("mlp", 10, 0.8, batch_size=200))


def test_all_workers_end_with_the_same_parameters(project: Project) -> None:
    flags = ("--global_steps", "30", "--seed", str(SEED), "--record_every", "1")
    ran = project.run("multiworker", "workers", *flags, "--learning_rate", "0.1")
    assert ran.results == {"replicas compared": 2, "replicas that differ": 0}
    expected = reference("mlp", 30, 0.1, batch_size=200)
    for task in ("worker-0", "worker-1"):
        assert_close(ran.losses(task), expected)
    assert (ran.path / "model/model.npz").is_file()


@pytest.mark.parametrize(
    "project", ["local", pytest.param("compose", marks=pytest.mark.engine)], indirect=True
)
def test_a_coordinator_survives_a_killed_worker(project: Project) -> None:
    flags = ("--global_steps", "1500", "--record_every", "50")
    fault = ("--fault", "kill worker-1 after 300 steps")
    ran = project.run("coordinator", "coordinator", *flags, *fault)
    # A step of a killed worker may be made twice; at most one was under way there.
    assert 1500 <= ran.results["steps counted"] <= 1501
    attempts = {task["task"]: task["attempts"] for task in ran.summary["tasks"]}
    assert attempts == {"chief-0": 1, "ps-0": 1, "worker-0": 1, "worker-1": 2}


def test_an_evaluator_follows_the_checkpoints_to_the_last(project: Project) -> None:
    ran = project.run("evaluator", "evaluator", "--global_steps", "2500", "--seed", "7")
    records = ran.records("evaluator-0", "eval")
    curve = [(each["global_step"], each["accuracy"]) for each in records]
    assert len(curve) == ran.results["checkpoints evaluated"] >= 2
    assert curve == sorted(curve)
    step, accuracy = curve[-1]
    assert (step, accuracy) == (2500, pytest.approx(ran.summary["accuracy"], abs=1e-4))
    assert curve[0][1] < accuracy


def test_staleness_equals_the_number_of_other_workers(project: Project) -> None:
    # Even on a busy machine, the others make their steps while a worker waits this long.
    flags = ("--global_steps", "120", "--seed", str(SEED), "--record_every", "1", "--pause", "0.1")
    ran = project.run("staleness", "book", *flags)
    assert (ran.summary["global_step"], ran.summary["updates_conserved"]) == (120, True)
    steps = [step for index in range(3) for step in ran.records(f"worker-{index}", "step")]
    told = [step["staleness"] for step in steps]
    assert len(told) == 120
    found = ran.results
    assert found["staleness"] == pytest.approx(sum(told) / 120)
    assert sum(task["staleness_sum"] or 0 for task in ran.summary["tasks"]) == sum(told)
    assert sum(task["staleness_steps"] or 0 for task in ran.summary["tasks"]) == 120
    assert 1 <= found["staleness"] <= 2
    # The book's rate barely moves the loss of a unit normal start in so few steps; this one does.
    assert found["test loss"] < 3
