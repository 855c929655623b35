"""The training programs as real processes, held against the oracle."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from lab.protocol.mnist import Mnist, load_mnist
from lab.protocol.saved_model import load_model
from tests import oracle
from tests.support.agents import wait_for
from tests.support.cluster import (
    ROOT,
    assert_staleness_adds_up,
    cluster,
    mean_staleness,
)
from tests.support.trained import (
    SEED,
    assert_close,
    assert_same,
    assert_whole,
    batches,
    losses,
    reference,
)

pytestmark = pytest.mark.tensorflow

ASYNC, SYNC = "mnist_async.py", "mnist_sync.py"
FAST, SYNC_FAST = "async_fast.py", "sync_fast.py"
HELD = "the parameter servers still hold an earlier run; restart them"


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    return load_mnist()


@dataclass(frozen=True)
class One:
    """A training by one worker."""

    program: str
    recorded: list[int] | None = None
    flags: tuple[str, ...] = ()
    model: str = "softmax"
    rates: Mapping[str, float] = field(default_factory=lambda: {"rate": 0.01})


UPDATES = 30
SEVENTH = ("--steps_per_call=7",)
AT_BEGINS = [1, 8, 15, 22, 29, 30]


@pytest.mark.parametrize(
    "one",
    [
        One(ASYNC, None, ("--model=mlp",), "mlp", {"rate": 0.05, "decay": 0.99}),
        One(FAST, AT_BEGINS, SEVENTH),
        One(SYNC_FAST, AT_BEGINS, SEVENTH),
    ],
    ids=lambda one: f"{one.program}-{len(one.flags)}",
)
def test_one_worker_makes_the_steps_of_the_oracle(tmp_path: Path, mnist: Mnist, one: One) -> None:
    """Each step reads what the step before it wrote, also within a call."""
    stream = partial(batches, mnist)
    expected = reference(one.model, stream(), UPDATES, **one.rates)
    own = (f"--learning_rate={one.rates['rate']}", *one.flags)
    flags = (f"--global_steps={UPDATES}", f"--seed={SEED}", "--record_every=1", *own)
    with cluster(one.program, tmp_path, *flags, LAB_RUN_DIR=str(tmp_path / "run")) as made:
        made.start_all()
        made.succeed()
        assert_whole(made.chief)
        steps = made.chief.kind("step", "epoch")
        outcome = made.outcome()
    recorded = one.recorded or list(range(1, UPDATES + 1))
    assert [record["global_step"] for record in steps] == recorded
    assert_close(losses(steps), [expected[step - 1].loss for step in recorded])
    assert {record.get("staleness", 0) for record in steps} == {0}
    assert outcome["global_step"] == outcome["probe"] == UPDATES
    saved = load_model(tmp_path / "run" / "model")
    assert (saved.model, saved.global_step) == (one.model, UPDATES)
    assert_same(saved.parameters, one.model, stream, UPDATES, **one.rates)
    accuracy = oracle.accuracy(dict(saved.parameters), mnist.test)
    assert outcome["accuracy"] == pytest.approx(accuracy, abs=1e-4)
    assert saved.averages.keys() == (saved.parameters.keys() if one.model == "mlp" else set())


@pytest.mark.parametrize(
    ("program", "model", "rates", "flags", "recorded"),
    [
        (SYNC, "mlp", {"rate": 0.1, "decay": 0.99}, ("--model=mlp",), list(range(1, UPDATES + 1))),
        (SYNC_FAST, "softmax", {"rate": 0.01}, SEVENTH, AT_BEGINS),
    ],
    ids=["sync", "sync-fast"],
)
def test_sync_equals_the_oracle_on_the_joined_batches(
    tmp_path: Path,
    mnist: Mnist,
    program: str,
    model: str,
    rates: Mapping[str, float],
    flags: tuple[str, ...],
    recorded: list[int],
) -> None:
    workers = 3

    def joined() -> Iterator[oracle.Batch]:
        return oracle.joined([batches(mnist, index) for index in range(workers)])

    expected = reference(model, joined(), UPDATES, **rates)
    own = (f"--learning_rate={rates['rate']}", *flags)
    asked = (*own, f"--seed={SEED}", "--record_every=1", f"--global_steps={UPDATES}")
    run = tmp_path / "run"
    with cluster(program, tmp_path, *asked, workers=workers, LAB_RUN_DIR=str(run)) as made:
        made.start_all()
        made.succeed()
        before = [oracle.initial_parameters(model, SEED)]
        before += [step.parameters for step in expected]
        for index, task in enumerate(made.worker_tasks):
            assert_whole(task)
            steps = task.kind("step", "epoch")
            assert [record["global_step"] for record in steps] == recorded
            seen = zip(before[:UPDATES], batches(mnist, index), strict=False)
            own_losses = [oracle.loss_and_gradients(now, *batch)[0] for now, batch in seen]
            assert_close(losses(steps), [own_losses[step - 1] for step in recorded])
            assert all(float(record["wait_time_s"]) >= 0 for record in steps)
            assert task.final["local_step"] == UPDATES
            assert task.final["accuracy"] == made.outcome()["accuracy"]
        assert made.outcome()["global_step"] == made.outcome()["probe"] == UPDATES
    assert_same(load_model(run / "model").parameters, model, joined, UPDATES, **rates)


@pytest.mark.parametrize(
    ("program", "flags"),
    [(ASYNC, ()), (FAST, ("--steps_per_call=10",))],
    ids=["async", "fast"],
)
def test_async_loses_no_update_and_learns_as_the_oracle_does(
    tmp_path: Path, mnist: Mnist, program: str, flags: tuple[str, ...]
) -> None:
    workers, steps_each, begin = 3, 550, tmp_path / "begin"
    asked = ("--epochs=1", f"--seed={SEED}", "--record_every=10", *flags)
    with cluster(program, tmp_path, *asked, workers=workers, LAB_START=str(begin)) as made:
        made.start_all()
        # An epoch is over in less time than one may start after the other.
        made.wait_ready()
        begin.touch()
        made.succeed()
        finals = [task.final for task in made.worker_tasks]
        outcome = made.outcome()
        steps = [task.kind("step", "epoch") for task in made.worker_tasks]
        assert_staleness_adds_up(made.worker_tasks)
        for task in made.worker_tasks:
            assert_whole(task)
            (epoch,) = task.kind("epoch")
            assert (epoch["epoch"], epoch["local_step"]) == (0, steps_each)
    assert [final["local_step"] for final in finals] == [steps_each] * workers
    numbers = [record["global_step"] for each in steps for record in each]
    # Steps 1, 10, 20, … 550; no number comes twice.
    assert len(set(numbers)) == len(numbers) == workers * 56
    assert outcome["global_step"] == outcome["probe"] == workers * steps_each
    stale = [int(record["staleness"]) for each in steps for record in each]
    assert min(stale) >= 0
    assert max(stale) > 0
    assert mean_staleness(finals) <= workers - 1
    assert outcome["accuracy"] in oracle.asynchronous_band(mnist, workers * steps_each, SEED)
    # Each tested when it had finished: parameters after its own 550 steps at least. Chance is 0.1.
    for final in finals:
        assert 0.15 < float(final["accuracy"]) <= float(outcome["accuracy"]) + 0.01


def test_a_worker_with_nothing_to_do_ends_and_a_second_training_is_refused(tmp_path: Path) -> None:
    """Two workers share one step; the parameter server keeps it when a worker restarts."""
    with cluster(FAST, tmp_path, "--global_steps=1", workers=2) as made:
        made.start_all()
        made.succeed()
        assert [task.final["local_step"] for task in made.worker_tasks] == [1, 0]
        assert made.outcome()["global_step"] == made.outcome()["probe"] == 1
        again = made.start("worker", 0)
        assert again.wait() == 1
        assert again.stderr.read_text().splitlines()[-1] == f"error: {HELD}"
        assert again.final["message"] == HELD
        ps = made.tasks["ps-0"]
        ps.process.send_signal(signal.SIGTERM)
        assert ps.wait() == 128 + signal.SIGTERM


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


def test_sync_ends_at_the_exact_update_with_a_late_worker(tmp_path: Path) -> None:
    """Fewer gradients than workers: the late one is a backup."""
    updates, workers, aggregate = 60, 3, 2
    flags = (f"--global_steps={updates}", f"--replicas_to_aggregate={aggregate}")
    with cluster(SYNC, tmp_path, *flags, "--record_every=1", workers=workers) as made:
        made.start("ps", 0)
        for index in range(workers - 1):
            made.start("worker", index)
        wait_for(lambda: made.chief.is_ready, "the chief is ready")
        made.start("worker", workers - 1)
        made.succeed()
        for task in made.worker_tasks:
            assert_whole(task)
            assert task.final["global_step"] == updates
        local_steps = sum(int(task.final["local_step"]) for task in made.worker_tasks)
        assert local_steps >= aggregate * updates
        assert (made.outcome()["global_step"], made.outcome()["probe"]) == (updates, updates)


def test_variables_are_spread_over_the_parameter_servers(tmp_path: Path) -> None:
    """Greedy: 1.6 MB of weights1 outweigh all the others together."""
    updates, places = 60, {"weights1": 0, "biases1": 1, "weights2": 1, "biases2": 1}
    flags = ("--model=mlp", "--ps_strategy=greedy", f"--global_steps={updates}")
    with cluster(ASYNC, tmp_path, *flags, "--log_device_placement", ps=2, workers=2) as made:
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


WATCHED = """

class _Watched:
    def __init__(self, chief, session):
        self.chief, self.session, self.complete = chief, session, False

    def run(self, fetches, feed_dict=None):
        result = self.session.run(fetches, feed_dict)
        if not self.complete and not len(self.session.run(self.chief.missing_variables)):
            self.complete = True
            step = int(self.session.run(self.chief.global_step))
            self.chief.recorder.write("event", global_step=step, message="complete")
        return result


_initialize = Chief.initialize
Chief.initialize = lambda self, session: _initialize(self, _Watched(self, session))
"""


def test_workers_start_only_after_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    """They wait for the last variable that has no value; then all have those of the checkpoint."""
    scripts = tmp_path / "scripts"
    shutil.copytree(ROOT / "scripts", scripts)
    with (scripts / "chief.py").open("a") as file:
        file.write(WATCHED)
    for steps in (3, 4):
        flags = (f"--global_steps={steps}", f"--checkpoint_dir={tmp_path / 'kept'}")
        with cluster(str(scripts / "mnist_async.py"), tmp_path, *flags) as made:
            made.start_all()
            made.succeed()
            (event,) = [each for each in made.chief.kind("event") if each["message"] == "complete"]
            assert event["global_step"] == (0 if steps == 3 else 3)


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
        wait_for(lambda: any(r["kind"] == "step" for r in made.chief.records), "a step")
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
        wait_for(lambda: chief.is_ready, "the chief is ready")
        for task in (chief, ps):
            task.process.send_signal(signal.SIGINT)
            assert task.wait() == 130
            error = task.stderr.read_text()
            assert error.splitlines()[-1] == "interrupted"
            assert "Traceback" not in error
