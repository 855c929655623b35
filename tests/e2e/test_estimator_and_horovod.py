"""Estimator and Horovod through `lab run`, on the TensorFlow that still has them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.protocol.mnist import load_mnist
from lab.protocol.runtimes import HERITAGE
from lab.protocol.saved_model import load_model
from lab.protocol.volume.layout import READY_S
from tests import oracle
from tests.support.agents import processes_with
from tests.support.commands import ROOT, lab
from tests.support.conditions import lacking
from tests.support.experiments import LOCAL, Project, Ran, make_project
from tests.support.trained import SEED, assert_close

pytestmark = pytest.mark.tensorflow

SEEDED = ("--seed", str(SEED))


@pytest.fixture(params=["local"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    if request.param == "compose":
        request.getfixturevalue("heritage_image")
    elif HERITAGE.python(ROOT) is None:
        lacking(f"no {HERITAGE.environment} here; `make {HERITAGE.target}` makes it")
    yield make_project(tmp_path, request.param)
    assert processes_with(str(tmp_path)) == []


def told(ran: Ran, task: str, begin: str) -> dict[str, Any]:
    """The only event of a task whose message has this prefix."""
    events = ran.records(task, "event")
    (found,) = [each for each in events if each.get("message", "").startswith(begin)]
    return found


def when(ran: Ran, task: str, begin: str) -> float:
    return float(told(ran, task, begin)["time_unix"])


def joined_reference(
    model: str, updates: int, rate: float, streams: list[Iterator[oracle.Batch]]
) -> tuple[list[float], float]:
    """Losses and final test accuracy of the NumPy oracle, with one batch of each stream a step."""
    steps = oracle.train(oracle.initial_parameters(model, SEED), oracle.joined(streams), rate=rate)
    made = list(itertools.islice(steps, updates))
    return [step.loss for step in made], oracle.accuracy(made[-1].parameters, load_mnist().test)


def test_every_task_of_an_estimator_knows_its_part_and_ends(project: Project) -> None:
    ran = project.run("estimator", "estimator", *SEEDED, "--global_steps", "1000")
    assert set(ran.states.values()) == {"succeeded"}
    assert len(ran.states) == 7
    assert ran.results["RunConfig fields that differ"] == 0
    hosts = json.loads((ran.path / "run.json").read_text())["cluster"]
    counts = "num_ps_replicas=2, num_worker_replicas=4"
    expected = {
        "chief-0": f"master='grpc://{hosts['chief'][0]}', task_id=0, {counts}, is_chief=True",
        "worker-1": f"master='grpc://{hosts['worker'][1]}', task_id=1, {counts}, is_chief=False",
        "ps-1": f"master='grpc://{hosts['ps'][1]}', task_id=1, {counts}, is_chief=False",
        "evaluator-0": "master='', task_id=0, num_ps_replicas=0, num_worker_replicas=0,"
        " is_chief=False",
    }
    assert {task: told(ran, task, "RunConfig: ")["message"] for task in expected} == {
        task: f"RunConfig: {text}" for task, text in expected.items()
    }

    trainers = ["chief-0", "worker-0", "worker-1", "worker-2"]
    finals = [ran.records(task, "final")[-1] for task in trainers]
    made = ran.summary["global_step"]
    # A step is under way at each of the others when the last is made; and as a step reads the count
    # at its begin, each of the four may find out only after one more.
    assert 1000 <= made <= 1000 + 3 + 4
    assert sum(each["local_step"] for each in finals) == made
    knew = {task: when(ran, task, "RunConfig: ") for task in trainers}
    ready = {task: when(ran, task, "has a session") for task in trainers}
    # A worker that did not get the chief's variables would ask again after 30 seconds.
    waits = [ready[task] - max(knew[task], ready["chief-0"]) for task in trainers]
    assert max(waits) < 30

    curve = [(each["global_step"], each["accuracy"]) for each in ran.records("evaluator-0", "eval")]
    assert len(curve) == ran.results["checkpoints evaluated"]
    assert curve == sorted(curve)
    step, accuracy = curve[-1]
    assert 1000 <= step <= made
    assert accuracy in oracle.asynchronous_band(load_mnist(), step, SEED, workers=4, sample=8)
    assert load_model(ran.path / "model").global_step == step


def test_a_mirrored_estimator_is_one_process_with_the_joined_batch(project: Project) -> None:
    flags = ("--global_steps", "500", "--cpu_replicas", "3", "--record_every", "50")
    ran = project.run("estimator-mirrored", "one-host", *SEEDED, *flags)
    assert ran.states == {"worker-0": "succeeded"}
    found = ran.results
    assert (found["replicas built"], found["RunConfig fields that differ"]) == (3, 0)
    # One stream, from which the replicas take their batches in turn.
    stream = oracle.worker_batches(load_mnist().train, SEED, 0)
    losses, accuracy = joined_reference("softmax", 500, 0.01, [stream] * 3)
    steps = [each["global_step"] for each in ran.records("worker-0", "step")]
    assert steps == [1, *range(50, 501, 50)]
    assert_close(ran.losses("worker-0"), [losses[0], *losses[49::50]])
    # Of 10,000 images one or two depend on rounding.
    assert ran.summary["tasks"][0]["accuracy"] == pytest.approx(accuracy, abs=2.5e-4)


# Two of the four share a node.
FOUR = """\
version: 1
name: four
nodes: {tf1: {}, tf2: {}, tf3: {}}
jobs: {worker: {on: [tf1, tf2, tf1, tf3]}}
"""


@pytest.mark.parametrize(
    ("project", "cluster", "ranks"),
    [
        ("local", "four", 4),
        pytest.param("compose", "workers", 2, marks=pytest.mark.engine),
    ],
    indirect=["project"],
)
def test_ranks_in_a_ring_end_with_the_same_parameters(
    project: Project, cluster: str, ranks: int
) -> None:
    (project.path / "clusters/four.yaml").write_text(FOUR)
    flags = ("--global_steps", "30", "--record_every", "1", "--learning_rate", "0.1")
    ran = project.run("horovod", cluster, *SEEDED, *flags)
    tasks = [f"worker-{index}" for index in range(ranks)]
    assert ran.states == dict.fromkeys(tasks, "succeeded")
    assert ran.results == {"ranks compared": ranks, "ranks that differ": 0}
    stream = oracle.worker_batches(load_mnist().train, SEED, 0, 100 * ranks)
    losses, accuracy = joined_reference("mlp", 30, 0.1, [stream])
    for task in tasks:
        assert_close(ran.losses(task), losses)
        (final,) = ran.records(task, "final")
        assert final["accuracy"] == pytest.approx(accuracy, abs=2.5e-4)
    assert load_model(ran.path / "model").global_step == 30


def test_a_ring_that_is_broken_ends_at_once(project: Project) -> None:
    flags = ("--global_steps", "100000", "--fault", "kill worker-1 after 100 steps")
    ran = project.run("horovod", "workers", *SEEDED, *flags, code=1)
    assert ran.summary["reason"] == (
        "worker-1 failed: killed by SIGKILL (the injected fault `kill worker-1 after 100 steps`)"
    )
    (last,) = ran.records("worker-0", "final")
    assert last["message"] == "lost contact with another rank; see how it ended"
    # Horovod waits that long for a rank that does not answer.
    assert last["time_unix"] - when(ran, "worker-1", "fault: kill") < READY_S


OWN = """\
import os
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
mean = float(hvd.allreduce(tf.constant(float(hvd.rank()))))
print(f"rank {hvd.rank()} of {hvd.size()}, local rank {hvd.local_rank()}: mean {mean}", flush=True)
if os.environ["LAB_ATTEMPT"] == "0":
    if hvd.rank() == 0:
        os._exit(3)
    hvd.allreduce(tf.constant(0.0))
"""


def test_a_program_of_the_users_own_forms_a_ring_and_a_new_one_after_a_failure(
    project: Project,
) -> None:
    (project.path / "clusters/four.yaml").write_text(FOUR)
    (project.path / "own.py").write_text(OWN)
    where = ("--cluster", "clusters/four.yaml", *LOCAL)
    lab(project.path, "run", "own.py", *where, "--on-failure", "restart:1")
    (run_dir,) = (project.path / "runs").iterdir()
    for rank in range(4):
        log = (run_dir / f"logs/worker-{rank}.log").read_text()
        assert log.count(f"rank {rank} of 4, local rank 0: mean 1.5\n") == 2, log
