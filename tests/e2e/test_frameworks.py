"""The programs of PyTorch and JAX as real processes, compared with the oracle."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lab.protocol.mnist import Mnist, load_mnist, scaled
from lab.protocol.runtimes import RUNTIMES
from lab.protocol.saved_model import load_model
from tests import oracle
from tests.support import seen_images
from tests.support.agents import wait_for
from tests.support.cluster import ROOT, Cluster, free_ports, removed_at_end
from tests.support.conditions import lacking, needs_namespaces
from tests.support.trained import (
    SEED,
    assert_close,
    assert_same,
    assert_whole,
    batches,
    losses,
    reference,
)

HOST = "127.0.0.1"


def python_with(runtime: str) -> str:
    wanted = RUNTIMES[runtime]
    python = wanted.python(ROOT)
    if python is None:
        lacking(f"no {wanted.environment} here; `make {wanted.target}` makes it")
    return str(python)


@contextlib.contextmanager
def ranks(
    runtime: str,
    program: str,
    directory: Path,
    *flags: str,
    workers: int = 3,
    ps: int = 0,
    network: tuple[str, ...] = (),
) -> Iterator[Cluster]:
    """Start a program whose workers are ranks, with the variables that they need."""
    (port,) = free_ports(1)
    of_rank = {"torch": _of_torch, "jax": _of_jax}[runtime]

    def own_variables(job: str, index: int) -> Mapping[str, str]:
        return of_rank(index, workers, port) if job == "worker" else {"GLOO_SOCKET_IFNAME": "lo"}

    made = Cluster(
        ROOT / "scripts" / program,
        directory,
        *(ps, workers, flags, {"LAB_RUN_DIR": str(directory / "run"), "OMP_NUM_THREADS": "1"}),
        python=(*network, python_with(runtime)),
        own_variables=own_variables,
    )
    with removed_at_end(made):
        made.start_all()
        yield made


def _of_torch(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": HOST,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _of_jax(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{HOST}:{port}",
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{HOST}:{port}",
        "OMPI_COMM_WORLD_SIZE": str(ranks),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    }


class PrivateNetwork:
    """A network with a loopback interface alone, which only the processes of one test use."""

    _HOLDER = (
        "from pyroute2 import IPRoute\nIPRoute().link('set', index=1, state='up')\nprint()\ninput()"
    )

    def __init__(self, holder: subprocess.Popen[bytes]) -> None:
        self._pid = holder.pid

    @classmethod
    @contextlib.contextmanager
    def made(cls) -> Iterator[PrivateNetwork]:
        needs_namespaces()
        command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c"]
        pipe = subprocess.PIPE
        with subprocess.Popen([*command, cls._HOLDER], stdin=pipe, stdout=pipe) as holder:
            assert holder.stdout.readline(), "the private network was not made"
            yield cls(holder)
            holder.stdin.close()

    @property
    def command(self) -> tuple[str, ...]:
        """The command that runs another one in this network."""
        return ("nsenter", f"--target={self._pid}", "--user", "--net", "--preserve-credentials")

    @property
    def bytes_sent(self) -> int:
        lines = Path(f"/proc/{self._pid}/net/dev").read_text().splitlines()
        (counters,) = [line.split() for line in lines if line.split()[0] == "lo:"]
        return int(counters[9])


WORKERS = 3
SEEDED = (f"--seed={SEED}", "--record_every=1")
jax = partial(pytest.param, marks=pytest.mark.jax)


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    return load_mnist()


def results(made: Cluster) -> list[dict[str, float]]:
    found = []
    for task in made.worker_tasks:
        for each in task.kind("result"):
            low, high = float(each.get("low", -np.inf)), float(each.get("high", np.inf))
            assert low <= float(each["value"]) <= high, each
        found.append({str(each["name"]): float(each["value"]) for each in task.kind("result")})
    return found


# ---- An epoch is a pass over the images

IMAGES, SMALL_BATCH, EPOCHS = 103, 5, 2  # With each number of ranks, some images are left out.

# Before the program runs, its framework passes on each batch that a rank trains with.
WATCHED = {
    "torch": """
import torch_model
def watched(forward):
    def forward_of(model, images, labels):
        seen_images.note(images)
        return forward(model, images, labels)
    return forward_of
for each in torch_model.MODELS.values():
    each.forward = watched(each.forward)
""",
    "jax": """
import jax
make_array = jax.make_array_from_process_local_data
def watched(sharding, values):
    if values.shape[1:] == (784,):
        seen_images.note(values)
    return make_array(sharding, values)
jax.make_array_from_process_local_data = watched
""",
}


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("runtime", "program"),
    [
        ("torch", "ddp.py"),
        ("torch", "fsdp.py"),
        ("torch", "local_sgd.py"),
        jax("jax", "jax_dp.py"),
    ],
    ids=lambda value: value,
)
def test_an_epoch_is_a_pass_over_the_images(
    tmp_path: Path, runtime: str, program: str, workers: int
) -> None:
    seen_images.write_numbered_images(tmp_path / "data", IMAGES)
    watching = seen_images.watching(tmp_path, ROOT / "scripts" / program, WATCHED[runtime])
    flags = (f"--data_dir={tmp_path / 'data'}", f"--batch_size={SMALL_BATCH}", f"--epochs={EPOCHS}")
    with ranks(runtime, str(watching), tmp_path, *flags, *SEEDED, workers=workers) as made:
        made.succeed()
    seen = seen_images.seen(tmp_path)
    assert len(seen) == workers
    seen_images.assert_each_epoch_is_a_pass(seen, IMAGES, SMALL_BATCH, EPOCHS)


def joined_batches(runtime: str, mnist: Mnist) -> Iterator[oracle.Batch]:
    """The batches of all ranks together: the order of the images is torch's, or that of NumPy."""
    if runtime == "jax":
        return oracle.worker_batches(mnist.train, SEED, 0, 100 * WORKERS)
    return oracle.joined(batches_of_torch(mnist))


def batches_of_torch(mnist: Mnist) -> list[Iterator[oracle.Batch]]:
    """The batches of each rank in the first epoch, in the order that torch's own sampler draws."""
    code = (
        "import json\nfrom torch.utils.data import DistributedSampler as Sampler\n"
        f"samplers = [Sampler(range({len(mnist.train)}), {WORKERS}, rank, seed={SEED},"
        f" drop_last=True) for rank in range({WORKERS})]\n"
        "print(json.dumps([list(each) for each in samplers]))"
    )
    printed = subprocess.run([python_with("torch"), "-c", code], check=True, capture_output=True)
    return [in_order(mnist, order) for order in json.loads(printed.stdout)]


def in_order(mnist: Mnist, order: list[int]) -> Iterator[oracle.Batch]:
    for begin in range(0, len(order), 100):
        chosen = order[begin : begin + 100]
        yield scaled(mnist.train.pixels[chosen]), mnist.train.labels[chosen]


# ---- The workers together are one process with the joined batches

UPDATES = 100
# As for `in-graph` and `model-parallel` after as many steps. At a hidden unit, rounding can decide
# whether an image's gradient passes. One step changes parameters by more.
APART = 1e-4


@pytest.mark.parametrize("model", ["softmax", "mlp"])
@pytest.mark.parametrize(
    ("runtime", "program"),
    [("torch", "ddp.py"), ("torch", "fsdp.py"), jax("jax", "jax_dp.py")],
    ids=lambda value: value,
)
def test_the_ranks_are_one_process_with_the_joined_batch(
    tmp_path: Path, mnist: Mnist, runtime: str, program: str, model: str
) -> None:
    rate = 0.1
    flags = (f"--model={model}", f"--learning_rate={rate}", f"--global_steps={UPDATES}", *SEEDED)
    with ranks(runtime, program, tmp_path, *flags, workers=WORKERS) as made:
        made.succeed()
    expected = reference(model, joined_batches(runtime, mnist), UPDATES, rate=rate)
    saved = load_model(tmp_path / "run/model")
    assert (saved.model, saved.global_step) == (model, UPDATES)
    for name, value in expected[-1].parameters.items():
        np.testing.assert_allclose(saved.parameters[name], value, rtol=0, atol=APART, err_msg=name)
    accuracy = oracle.accuracy(dict(saved.parameters), mnist.test)
    for task in made.worker_tasks:
        assert_whole(task)
        steps = task.kind("step", "epoch")
        assert [each["global_step"] for each in steps] == list(range(1, UPDATES + 1))
        assert_close(losses(steps), [each.loss for each in expected])
        assert task.final["examples"] == UPDATES * WORKERS * 100
        assert task.final["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert len(results(made)) == WORKERS
    assert all(results(made))


SHAPES = {"weights1": (784, 500), "biases1": (500,), "weights2": (500, 10), "biases2": (10,)}
MLP_BYTES = 4 * sum(int(np.prod(shape)) for shape in SHAPES.values())


def test_each_rank_of_fsdp_stores_its_rows(tmp_path: Path) -> None:
    flags = ("--model=mlp", "--global_steps=1", *SEEDED)
    with ranks("torch", "fsdp.py", tmp_path, *flags, workers=4) as made:
        made.succeed()
    # Of ten biases, ranks 0 to 2 have three, and rank 3 has the last one.
    whole = 196 * 500 + 125 + 125 * 10
    of_rank = [4 * (whole + biases) for biases in (3, 3, 3, 1)]
    assert [each["bytes of this rank"] for each in results(made)] == of_rank
    assert {each["bytes of all ranks"] for each in results(made)} == {MLP_BYTES}
    assert sum(of_rank) == MLP_BYTES


RATE = 0.1


def local_sgd(streams: list[Iterator[oracle.Batch]], updates: int, every: int) -> oracle.Parameters:
    """The oracle's local SGD: the mean of the workers' parameters, each trained on its own."""
    mean = oracle.initial_parameters("softmax", SEED)
    for begin in range(0, updates, every):
        count = min(every, updates - begin)
        ends = []
        for stream in streams:
            *_, last = oracle.train(mean, itertools.islice(stream, count), rate=RATE)
            ends.append(last.parameters)
        mean = {name: sum(end[name] for end in ends) / np.float32(len(streams)) for name in mean}
    return mean


@pytest.mark.parametrize("every", [1, 8])
def test_local_sgd_takes_the_mean_of_models_trained_alone(
    tmp_path: Path, mnist: Mnist, every: int
) -> None:
    flags = (f"--learning_rate={RATE}", "--global_steps=60", f"--average_every={every}", *SEEDED)
    with ranks("torch", "local_sgd.py", tmp_path, *flags, workers=WORKERS) as made:
        made.succeed()
    found = load_model(tmp_path / "run/model").parameters
    for name, value in local_sgd(batches_of_torch(mnist), 60, every).items():
        assert_close(found[name], value, err_msg=name)
    assert results(made) == [{"means": -(-60 // every), "ranks that differ": 0}] * WORKERS


def test_one_worker_and_a_server_make_the_steps_of_the_oracle(tmp_path: Path, mnist: Mnist) -> None:
    rates = {"rate": 0.05, "decay": 0.99}
    flags = ("--model=mlp", "--learning_rate=0.05", "--global_steps=30", *SEEDED)
    with ranks("torch", "torch_async.py", tmp_path, *flags, workers=1, ps=1) as made:
        made.succeed()
        assert made.tasks["ps-0"].wait() == 0
    steps = made.chief.kind("step")
    expected = reference("mlp", batches(mnist), 30, **rates)
    assert_close(losses(steps), [each.loss for each in expected])
    assert {each["staleness"] for each in steps} == {0}
    found = load_model(tmp_path / "run/model").parameters
    assert_same(found, "mlp", lambda: batches(mnist), 30, **rates)


def test_no_update_of_the_workers_is_lost_and_each_staleness_is_exact(tmp_path: Path) -> None:
    updates = 600
    flags = (f"--global_steps={updates}", *SEEDED)
    with ranks("torch", "torch_async.py", tmp_path, *flags, workers=WORKERS, ps=1) as made:
        made.succeed()
        assert made.tasks["ps-0"].wait() == 0
    outcome = made.outcome()
    assert outcome["global_step"] == outcome["probe"] == updates
    assert sum(int(task.final["local_step"]) for task in made.worker_tasks) == updates
    steps = {task.name: task.kind("step", "epoch") for task in made.worker_tasks}
    made_by = {int(step["global_step"]): name for name, own in steps.items() for step in own}
    assert sorted(made_by) == list(range(1, updates + 1))
    for name, own in steps.items():
        before = 0
        for step in own:
            now, staleness = int(step["global_step"]), int(step["staleness"])
            # It read after its own last update, and every update since the read was another's.
            assert 0 <= staleness <= now - 1 - before
            assert name not in {made_by[each] for each in range(now - staleness, now)}
            before = now
        assert own[-1]["staleness_sum"] == sum(int(each["staleness"]) for each in own)
    assert max(int(each["staleness"]) for own in steps.values() for each in own) > 0


def test_the_others_go_on_without_a_lost_worker(tmp_path: Path) -> None:
    flags = ("--global_steps=1500", *SEEDED)
    with ranks("torch", "torch_async.py", tmp_path, *flags, workers=WORKERS, ps=1) as made:
        lost = made.tasks["worker-1"]
        wait_for(lambda: len(lost.kind("step")) > 50, "steps", 120)
        lost.process.send_signal(signal.SIGKILL)
        for name in ("worker-0", "worker-2", "ps-0"):
            assert made.tasks[name].wait() == 0
    assert made.outcome()["global_step"] == made.outcome()["probe"] == 1500


@dataclass(frozen=True)
class Traffic:
    """What a program sends in one step of the mlp."""

    runtime: str
    program: str
    bytes: float
    ps: int = 0
    workers: int = WORKERS
    flags: tuple[str, ...] = ()


# A ring of n ranks: each sends 2 (n - 1) / n of the gradients, so all of them 2 (n - 1).
RING = 2 * (WORKERS - 1) * MLP_BYTES


def padded_bytes(ranks: int) -> int:
    """The bytes of the mlp if every rank has the same number of rows, rounded up."""
    rows = {name: -(-shape[0] // ranks) * ranks for name, shape in SHAPES.items()}
    return 4 * sum(rows[name] * int(np.prod(shape[1:])) for name, shape in SHAPES.items())


HEADERS = 66  # Ethernet, IPv4, and TCP with time stamps


@pytest.mark.parametrize(
    "sent",
    [
        Traffic("torch", "ddp.py", RING),
        # Before each of two passes each rank receives the other ranks' rows: 2 (n - 1). Then the
        # ranks add up the gradients of their rows: n - 1 by NCCL, but Gloo adds up all rows in each
        # rank.
        Traffic("torch", "fsdp.py", 4 * (WORKERS - 1) * padded_bytes(WORKERS)),
        Traffic("torch", "local_sgd.py", RING / 5, flags=("--average_every=5",)),
        # One worker's step: the parameters in one direction, and gradients in the other.
        # With several workers, the number of steps that come too late differs.
        Traffic("torch", "torch_async.py", 2 * MLP_BYTES, ps=1, workers=1),
        jax(Traffic("jax", "jax_dp.py", RING)),
    ],
    ids=lambda sent: sent.program,
)
def test_a_step_sends_the_bytes_of_its_algorithm(tmp_path: Path, sent: Traffic) -> None:
    counts = []
    for updates in (20, 60):  # The difference has nothing of the start and of the end.
        folder = tmp_path / str(updates)
        folder.mkdir()
        flags = ("--model=mlp", f"--global_steps={updates}", *SEEDED, *sent.flags)
        with (
            PrivateNetwork.made() as network,
            ranks(
                *(sent.runtime, sent.program, folder, *flags),
                workers=sent.workers,
                ps=sent.ps,
                network=network.command,
            ) as made,
        ):
            made.succeed()
            counts.append(network.bytes_sent)
    found = (counts[1] - counts[0]) / 40
    print(f"{sent.program}: {found:.0f} bytes a step, expected {sent.bytes:.0f}")
    # A packet of the loopback interface has up to 64 KiB. With 8 KiB, and one acknowledgement for
    # each, headers are 2 x 66 bytes of 8,192.
    assert sent.bytes <= found <= sent.bytes * (1 + 2 * HEADERS / 8192)


@pytest.mark.parametrize(
    ("runtime", "program", "other"),
    [("torch", "ddp.py", "rank"), ("torch", "fsdp.py", "rank"), jax("jax", "jax_dp.py", "process")],
    ids=lambda value: value,
)
def test_a_lost_rank_ends_the_others_with_one_line(
    tmp_path: Path, runtime: str, program: str, other: str
) -> None:
    with ranks(runtime, program, tmp_path, "--global_steps=1000000", *SEEDED) as made:
        wait_for(lambda: all(task.kind("step") for task in made.worker_tasks), "steps", 120)
        made.tasks["worker-1"].process.send_signal(signal.SIGKILL)
        for name in ("worker-0", "worker-2"):
            assert made.tasks[name].wait(30) == 1
            reason = f"lost contact with another {other}; see how it ended"
            assert made.tasks[name].final["message"] == reason
            # Threads of JAX may log after it.
            assert f"error: {reason}" in made.tasks[name].stderr.read_text().splitlines()
