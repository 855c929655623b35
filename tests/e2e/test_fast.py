"""The quick listings train as the plain ones do: the same steps, the same rounds, none lost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lab.task.sdk.data import Mnist, load_mnist
from lab.task.sdk.model import load_model
from tests import oracle
from tests.support.cluster import assert_staleness_adds_up, cluster, mean_staleness

pytestmark = pytest.mark.tensorflow

UNROLLED, ASYNC, SYNC = "async_unrolled.py", "async_fast.py", "sync_fast.py"
SEED = 7
# Sums of float32 in another order: the difference grows with the number of updates.
assert_close = partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-6)


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    return load_mnist()


def batches(mnist: Mnist, task_index: int) -> Iterator[oracle.Batch]:
    return oracle.worker_batches(mnist.train, SEED, task_index)


def reference(
    stream: Iterator[oracle.Batch], updates: int
) -> tuple[list[float], oracle.Parameters]:
    """The oracle's losses before each update, and its parameters after the last one."""
    steps = oracle.train(oracle.initial_parameters("softmax", SEED), stream, rate=0.01)
    made = list(itertools.islice(steps, updates))
    return [step.loss for step in made], made[-1].parameters


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        (ASYNC, ("--steps_per_call=7",)),
        (UNROLLED, ("--steps_per_call=7",)),
        (UNROLLED, ("--steps_per_call=1", "--packed=false", "--fetch=every", "--one_core=false")),
    ],
    ids=["at the top of the ladder", "in its middle", "at its foot"],
)
def test_one_worker_makes_the_steps_of_the_oracle(
    tmp_path: Path, mnist: Mnist, program: str, flags: tuple[str, ...]
) -> None:
    """Each step reads what the step before it wrote, also within a call."""
    updates = 30  # Calls of seven steps, and the rest.
    losses, parameters = reference(batches(mnist, 0), updates)
    asked = (f"--global_steps={updates}", f"--seed={SEED}", "--record_every=1", *flags)
    with cluster(program, tmp_path, *asked, LAB_RUN_DIR=str(tmp_path / "run")) as made:
        made.start_all()
        made.succeed()
        steps = made.chief.kind("step", "epoch")
        outcome = made.outcome()
    recorded = [record["global_step"] for record in steps]
    assert (
        recorded
        == {
            (ASYNC, 7): [1, 8, 15, 22, 29, 30],
            (UNROLLED, 7): [7, 14, 21, 28, 29, 30],
            (UNROLLED, 1): [*range(1, 31)],
        }[program, int(flags[0][-1])]
    )
    assert_close([record["loss"] for record in steps], [losses[step - 1] for step in recorded])
    assert {record["staleness"] for record in steps} == {0}
    assert outcome["global_step"] == outcome["probe"] == updates
    for name, value in load_model(tmp_path / "run" / "model").parameters.items():
        assert_close(value, parameters[name])


def test_a_worker_with_nothing_to_do_ends_and_a_second_training_is_refused(
    tmp_path: Path,
) -> None:
    """Two workers share one step; the parameter server keeps it when a worker restarts."""
    with cluster(ASYNC, tmp_path, "--global_steps=1", workers=2) as made:
        made.start_all()
        made.succeed()
        assert [task.final["local_step"] for task in made.worker_tasks] == [1, 0]
        assert made.outcome()["global_step"] == made.outcome()["probe"] == 1
        again = made.start("worker", 0)
        assert again.wait() == 1
        message = "the parameter servers still hold an earlier run; restart them"
        assert again.stderr.read_text().splitlines()[-1] == f"error: {message}"


@pytest.mark.parametrize("program", [ASYNC, UNROLLED])
def test_many_steps_in_a_call_lose_no_update_and_learn_as_the_oracle_does(
    tmp_path: Path, mnist: Mnist, program: str
) -> None:
    workers, steps_each = 3, 550
    flags = ("--epochs=1", f"--seed={SEED}", "--steps_per_call=10", "--record_every=10")
    word = tmp_path / "begin"
    with cluster(program, tmp_path, *flags, workers=workers, LAB_START=str(word)) as made:
        made.start_all()
        # An epoch is over in less time than one may start after the other.
        made.wait_ready()
        word.touch()
        made.succeed()
        steps = [task.kind("step", "epoch") for task in made.worker_tasks]
        finals = [task.final for task in made.worker_tasks]
        assert_staleness_adds_up(made.worker_tasks)
        outcome = made.outcome()
    assert [each[-1]["local_step"] for each in steps] == [steps_each] * workers
    numbers = [record["global_step"] for each in steps for record in each]
    records_each = steps_each // 10 + (program == ASYNC)  # Its first call makes one step.
    assert len(set(numbers)) == workers * records_each  # No two steps got the same one.
    assert outcome["global_step"] == outcome["probe"] == workers * steps_each
    stale = [int(record["staleness"]) for each in steps for record in each]
    assert min(stale) >= 0
    assert max(stale) > 0
    assert mean_staleness(finals) <= workers - 1
    assert outcome["accuracy"] in oracle.asynchronous_band(mnist, workers * steps_each, SEED)


def test_rounds_made_by_the_parameter_server_are_those_of_the_oracle(
    tmp_path: Path, mnist: Mnist
) -> None:
    updates, workers = 30, 3
    streams = [batches(mnist, index) for index in range(workers)]
    _, parameters = reference(oracle.joined(streams), updates)
    flags = (f"--global_steps={updates}", "--steps_per_call=7", f"--seed={SEED}")
    made_by = partial(cluster, SYNC, tmp_path, *flags, "--record_every=1", workers=workers)
    with made_by(LAB_RUN_DIR=str(tmp_path / "run")) as made:
        made.start_all()
        made.succeed()
        outcome = made.outcome()
        finals = [task.final for task in made.worker_tasks]
        steps = [task.kind("step", "epoch") for task in made.worker_tasks]
    recorded = [1, 8, 15, 22, 29, 30]
    for index, each in enumerate(steps):
        assert [record["global_step"] for record in each] == recorded
        own = own_losses(mnist, index, updates)
        assert_close([record["loss"] for record in each], [own[step - 1] for step in recorded])
        assert all(float(record["wait_time_s"]) > 0 for record in each)
    assert [final["local_step"] for final in finals] == [updates] * workers
    assert {final["accuracy"] for final in finals} == {outcome["accuracy"]}
    assert outcome["global_step"] == outcome["probe"] == updates
    for name, value in load_model(tmp_path / "run" / "model").parameters.items():
        assert_close(value, parameters[name])


def own_losses(mnist: Mnist, task_index: int, updates: int) -> list[float]:
    """A worker's losses on its own batches, with the parameters that all workers have made."""
    streams = [batches(mnist, index) for index in range(3)]
    own = batches(mnist, task_index)
    parameters = oracle.initial_parameters("softmax", SEED)
    found = []
    for step in itertools.islice(
        oracle.train(parameters, oracle.joined(streams), rate=0.01), updates
    ):
        found.append(oracle.loss_and_gradients(parameters, *next(own))[0])
        parameters = {name: value.copy() for name, value in step.parameters.items()}
    return found
