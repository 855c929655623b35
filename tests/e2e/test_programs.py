"""The training programs as real processes, held against the oracle."""

from __future__ import annotations

import itertools
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from lab.records import Record
from lab.task.sdk.data import Floats, Mnist, load_mnist
from lab.task.sdk.model import load_model
from tests import oracle
from tests.support.cluster import (
    PATIENCE_S,
    Task,
    assert_staleness_adds_up,
    cluster,
    mean_staleness,
)

pytestmark = pytest.mark.tensorflow

ASYNC, SYNC = "mnist_async.py", "mnist_sync.py"
SEED = 7
# Sums of float32 in another order: the difference grows with the number of updates.
assert_close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    return load_mnist()


def batches(mnist: Mnist, task_index: int = 0) -> Iterator[oracle.Batch]:
    return oracle.worker_batches(mnist.train, SEED, task_index)


def reference(
    model: str, stream: Iterator[oracle.Batch], updates: int, **rates: float
) -> list[oracle.Step]:
    """The oracle's updates, each with its parameters."""
    steps = oracle.train(oracle.initial_parameters(model, SEED), stream, **rates)
    copied = (
        oracle.Step(step.loss, {name: value.copy() for name, value in step.parameters.items()})
        for step in steps
    )
    return list(islice(copied, updates))


def wait_for(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def assert_whole(task: Task) -> None:
    """No record is lost, and the last one reports that the task succeeded."""
    assert [record["seq"] for record in task.records] == list(range(len(task.records)))
    assert task.records[0]["kind"] == "start"
    assert task.final["status"] == "succeeded"
    assert "Traceback" not in task.stderr.read_text()
    assert "deprecated" not in task.stderr.read_text()


def assert_same(
    found: Mapping[str, Floats],
    model: str,
    stream: Callable[[], Iterator[oracle.Batch]],
    updates: int,
    **rates: float,
) -> None:
    """The parameters are the oracle's, except where rounding decides on a gradient.

    Where it does, a unit ends between a training that lets each such gradient pass and one that
    stops each. It may differ from both by as much again, since their differences can cancel out.
    """

    def trained(kink: float) -> oracle.Parameters:
        return reference(model, stream(), updates, kink=kink, **rates)[-1].parameters

    expected = trained(0.0)
    room = oracle.apart(trained(-oracle.ROUNDING), trained(oracle.ROUNDING))
    assert max(float(each.max()) for each in room.values()) < 2e-3
    assert max(float(np.median(each)) for each in room.values()) < 1e-5
    for name, value in expected.items():
        low, high = value - 2 * room[name], value + 2 * room[name]
        assert_close(found[name], np.clip(found[name], low, high), err_msg=name)


def losses(records: list[Record]) -> list[float]:
    return [float(record["loss"]) for record in records]


@pytest.mark.parametrize(("model", "rate", "decay"), [("softmax", 0.01, 1.0), ("mlp", 0.05, 0.99)])
def test_async_with_one_worker_equals_the_oracle_step_by_step(
    tmp_path: Path, mnist: Mnist, model: str, rate: float, decay: float
) -> None:
    updates = 40
    expected = reference(model, batches(mnist), updates, rate=rate, decay=decay)
    flags = (f"--model={model}", f"--learning_rate={rate}", f"--seed={SEED}", "--record_every=1")
    stop = f"--global_steps={updates}"
    with cluster(ASYNC, tmp_path, *flags, stop, LAB_RUN_DIR=str(tmp_path / "run")) as made:
        made.start_all()
        made.succeed()
        assert_whole(made.chief)
        steps = made.chief.kind("step", "epoch")
        assert_close(losses(steps), [step.loss for step in expected])
        assert [record["global_step"] for record in steps] == list(range(1, updates + 1))
        assert {record["staleness"] for record in steps} == {0}
        assert made.outcome()["probe"] == updates

        saved = load_model(tmp_path / "run" / "model")
        assert (saved.model, saved.global_step) == (model, updates)
        stream = partial(batches, mnist)
        assert_same(saved.parameters, model, stream, updates, rate=rate, decay=decay)
        parameters = dict(saved.parameters)
        assert made.outcome()["accuracy"] == pytest.approx(
            oracle.accuracy(parameters, mnist.test), abs=1e-4
        )
        assert saved.averages.keys() == (saved.parameters.keys() if model == "mlp" else set())

        # The parameter server still holds this run: a new one must not go on with it.
        again = made.start("worker", 0)
        assert again.wait() == 1
        message = "the parameter servers still hold an earlier run; restart them"
        assert again.stderr.read_text().splitlines()[-1] == f"error: {message}"
        assert again.final["message"] == message

        ps = made.tasks["ps-0"]
        ps.process.send_signal(signal.SIGTERM)
        assert ps.wait() == 128 + signal.SIGTERM


def test_sync_equals_the_oracle_on_the_joined_batches(tmp_path: Path, mnist: Mnist) -> None:
    updates, workers = 30, 3

    def joined() -> Iterator[oracle.Batch]:
        return oracle.joined([batches(mnist, index) for index in range(workers)])

    expected = reference("mlp", joined(), updates, rate=0.1, decay=0.99)
    flags = ("--model=mlp", "--learning_rate=0.1", f"--seed={SEED}", "--record_every=1")
    stop = f"--global_steps={updates}"
    made_by = partial(cluster, SYNC, tmp_path, *flags, stop, workers=workers)
    with made_by(LAB_RUN_DIR=str(tmp_path / "run")) as made:
        made.start_all()
        made.succeed()
        before = [oracle.initial_parameters("mlp", SEED)]
        before += [step.parameters for step in expected]
        for index, task in enumerate(made.worker_tasks):
            assert_whole(task)
            steps = task.kind("step", "epoch")
            assert [record["global_step"] for record in steps] == list(range(1, updates + 1))
            own = zip(before[:updates], batches(mnist, index), strict=False)
            own_losses = [oracle.loss_and_gradients(now, *batch)[0] for now, batch in own]
            assert_close(losses(steps), own_losses)
            assert all(float(record["wait_time_s"]) >= 0 for record in steps)
            assert task.final["accuracy"] == made.outcome()["accuracy"]
        assert (made.outcome()["global_step"], made.outcome()["probe"]) == (updates, updates)
        saved = load_model(tmp_path / "run" / "model")
        assert_same(saved.parameters, "mlp", joined, updates, rate=0.1, decay=0.99)


def test_async_loses_no_update_and_learns_as_the_oracle_does(tmp_path: Path, mnist: Mnist) -> None:
    workers, steps_each = 3, 550
    flags = ("--epochs=1", f"--seed={SEED}", "--record_every=10")
    with cluster(ASYNC, tmp_path, *flags, workers=workers) as made:
        made.start_all()
        made.succeed()
        finals = [task.final for task in made.worker_tasks]
        outcome = made.outcome()
        stalenesses = [
            int(record["staleness"])
            for task in made.worker_tasks
            for record in task.kind("step", "epoch")
        ]
        assert_staleness_adds_up(made.worker_tasks)
        for task in made.worker_tasks:
            assert_whole(task)
            assert task.final["local_step"] == steps_each
            (epoch,) = task.kind("epoch")
            assert (epoch["epoch"], epoch["local_step"]) == (0, steps_each)
        counted = {r["global_step"] for t in made.worker_tasks for r in t.kind("step", "epoch")}
        assert len(counted) == workers * 56  # Steps 1, 10, 20 … 550; no two got the same number.
    assert sum(int(final["local_step"]) for final in finals) == workers * steps_each
    assert outcome["global_step"] == outcome["probe"] == workers * steps_each
    assert min(stalenesses) >= 0
    assert max(stalenesses) > 0
    assert mean_staleness(finals) <= workers - 1
    assert outcome["accuracy"] in oracle.asynchronous_band(mnist, workers * steps_each, SEED)
    for final in finals:  # Each tested when it had finished: earlier parameters, or the last.
        assert 0.3 < float(final["accuracy"]) <= float(outcome["accuracy"]) + 0.01


def test_the_chief_tests_the_parameters_during_the_training(tmp_path: Path) -> None:
    """In a round of all workers the parameters do not change while the chief tests them."""
    flags = ("--global_steps=120", f"--seed={SEED}", "--eval_every=50")
    with cluster(SYNC, tmp_path, *flags, workers=2) as made:
        made.start_all()
        made.succeed()
        chief, other = (task.kind("eval") for task in made.worker_tasks)
        steps = [record for record in made.chief.kind("step") if "local_step" in record]
        outcome = made.outcome()
    during = [record for record in chief if "local_step" in record]
    assert [record["global_step"] for record in during] == [50, 100]
    assert all(0.1 < float(record["accuracy"]) < 1 for record in during)
    assert [record["global_step"] for record in other] == [120]
    assert outcome["global_step"] == 120
    assert [record["local_step"] for record in steps] == [1, 100]


@pytest.mark.parametrize(("workers", "aggregate"), [(3, 2), (2, 3)])
def test_sync_ends_at_the_exact_update_with_a_late_worker(
    tmp_path: Path, workers: int, aggregate: int
) -> None:
    """Fewer gradients than workers: the late one is a backup. More: it is sorely missed."""
    updates = 150
    flags = (f"--global_steps={updates}", f"--replicas_to_aggregate={aggregate}")
    with cluster(SYNC, tmp_path, *flags, "--record_every=1", workers=workers) as made:
        made.start("ps", 0)
        for index in range(workers - 1):
            made.start("worker", index)
        wait_for(lambda: any(r.get("status") == "ready" for r in made.chief.records))
        made.start("worker", workers - 1)
        made.succeed()
        for task in made.worker_tasks:
            assert_whole(task)
            assert task.final["global_step"] == updates
        local_steps = sum(int(task.final["local_step"]) for task in made.worker_tasks)
        assert local_steps >= aggregate * updates
        assert (made.outcome()["global_step"], made.outcome()["probe"]) == (updates, updates)


@pytest.mark.parametrize(
    ("strategy", "workers", "places"),
    [
        # In turn: weights1, biases1, weights2, biases2, global_step, probe.
        ("round_robin", 1, {"weights1": 0, "biases1": 1, "weights2": 0, "biases2": 1}),
        # 1.6 MB of weights1 outweigh all the others together.
        ("greedy", 2, {"weights1": 0, "biases1": 1, "weights2": 1, "biases2": 1}),
    ],
)
def test_variables_are_spread_over_the_parameter_servers(
    tmp_path: Path, strategy: str, workers: int, places: dict[str, int]
) -> None:
    updates = 60
    flags = ("--model=mlp", f"--ps_strategy={strategy}", f"--global_steps={updates}")
    with cluster(ASYNC, tmp_path, *flags, "--log_device_placement", ps=2, workers=workers) as made:
        made.start_all()
        made.succeed()
        log = made.chief.stdout.read_text()
        for name, index in places.items():
            for operation in (f"{name}: (VarHandleOp)", f"update_{name}/ResourceApply"):
                (place,) = set(re.findall(rf"{re.escape(operation)}.*: (\S+)$", log, re.MULTILINE))
                assert place == f"/job:ps/replica:0/task:{index}/device:CPU:0"
        assert re.search(r"^MatMul: .*: /job:worker/replica:0/task:0/", log, re.MULTILINE)
        for task in made.worker_tasks:
            assert_whole(task)
        assert sum(int(task.final["local_step"]) for task in made.worker_tasks) == updates
        assert made.outcome()["global_step"] == made.outcome()["probe"] == updates


def test_training_resumes_from_a_checkpoint(tmp_path: Path, mnist: Mnist) -> None:
    half, rate = 30, 0.01
    stream = itertools.chain(islice(batches(mnist), half), islice(batches(mnist), half))
    expected = reference("softmax", stream, 2 * half, rate=rate)
    checkpoints = f"--checkpoint_dir={tmp_path / 'kept'}"
    for updates in (half, 2 * half):
        flags = (f"--seed={SEED}", f"--global_steps={updates}", "--record_every=1", checkpoints)
        with cluster(ASYNC, tmp_path, *flags) as made:
            made.start_all()
            made.succeed()
            assert made.outcome()["global_step"] == made.outcome()["probe"] == updates
            numbers = [record["global_step"] for record in made.chief.kind("step")]
            assert numbers == list(range(updates - half + 1, updates + 1))

    # Another model cannot go on from there.
    with cluster(ASYNC, tmp_path, "--model=mlp", checkpoints) as made:
        chief = made.start("worker", 0)
        assert chief.wait() == 1
        last = chief.stderr.read_text().splitlines()[-1]
        assert re.fullmatch(
            r"error: .*model-60: not a checkpoint of this model; use another.*", last
        )
    saved = load_model(tmp_path / "kept")
    for name, value in expected[-1].parameters.items():
        assert_close(saved.parameters[name], value)


def test_a_worker_that_loses_its_parameter_server_ends_at_once(tmp_path: Path) -> None:
    with cluster(SYNC, tmp_path, workers=2) as made:
        made.start_all()
        wait_for(lambda: any(r["kind"] == "step" for r in made.chief.records))
        made.tasks["ps-0"].process.kill()
        for task in made.worker_tasks:
            assert task.wait() == 1
            assert task.final["status"] == "failed"
            assert task.final["message"] == "lost contact with ps-0; see how it ended"
            assert task.stderr.read_text().splitlines()[-1] == f"error: {task.final['message']}"


def test_failures_are_one_line_and_ctrl_c_ends_all(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with cluster(SYNC, tmp_path, workers=3) as made, socket.socket() as other:
        ps, chief = made.start("ps", 0), made.start("worker", 0)
        made.flags = (f"--data_dir={tmp_path / 'data'}",)
        no_data = made.start("worker", 1)
        other.bind(("", int(made.worker_hosts[2].rpartition(":")[2])))
        other.listen()
        made.flags = ()
        no_port = made.start("worker", 2)

        assert no_data.wait() == 2
        last = no_data.stderr.read_text().splitlines()[-1]
        assert last.startswith(f"error: {tmp_path / 'data'}: has no file train-images-idx3-ubyte")
        assert no_data.final["status"] == "failed"
        assert no_port.wait() == 1
        last = no_port.stderr.read_text().splitlines()[-1]
        problem = f"cannot listen on {made.worker_hosts[2]}"
        assert last == f"error: {problem}; stop the program that uses it"

        # The chief waits inside TensorFlow for the two others, the ps for ever.
        wait_for(lambda: any(r.get("status") == "ready" for r in chief.records))
        for task in (chief, ps):
            task.process.send_signal(signal.SIGINT)
            assert task.wait() == 130
            error = task.stderr.read_text()
            assert error.splitlines()[-1] == "interrupted"
            assert "Traceback" not in error
