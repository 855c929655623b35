"""Programs of PyTorch and JAX of one's own, unchanged, through `lab run`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.runtimes import RUNTIMES
from tests.support.agents import processes_with
from tests.support.commands import ROOT
from tests.support.conditions import lacking
from tests.support.experiments import Project, make_project

# As scripts for `torchrun` are written: the place of a process comes from its variables.
TORCH = """\
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    for step in range(1, steps + 1):
        inputs = torch.randn(8, 4)
        loss = ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
    weights = model.module.weight.detach()
    seen = [torch.zeros_like(weights) for _ in range(size)]
    dist.all_gather(seen, weights)
    same = all(torch.equal(each, weights) for each in seen)
    print(f"rank {rank} of {size}: same weights: {same}, {os.environ['LAB_ATTEMPT']}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""

JAX = """\
import jax
import jax.numpy as jnp
from jax.experimental.multihost_utils import process_allgather

jax.distributed.initialize()
mine = jnp.full((1,), jax.process_index() + 1.0)
total = process_allgather(mine).sum()
for step in range(1, 4):
    print(f"step {step} loss {float(total) / step:.4f}", flush=True)
print(f"process {jax.process_index()} of {jax.process_count()}: total {total}", flush=True)
"""

SOURCES = {"torch": TORCH, "jax": JAX}
WORKERS = ("worker-0", "worker-1")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    yield make_project(tmp_path)
    left = processes_with(str(tmp_path))
    assert not left, f"left behind: {left}"


def add_program(project: Project, framework: str) -> str:
    """Write the program of a framework; return its name."""
    runtime = RUNTIMES[framework]
    if runtime.python(ROOT) is None:
        lacking(f"{runtime.title} is not here; `make {runtime.target}` installs it")
    (project.path / "train.py").write_text(SOURCES[framework])
    return "train.py"


def test_a_script_for_torchrun_runs_unchanged(project: Project) -> None:
    ran = project.run(add_program(project, "torch"), "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"rank {rank} of 2: same weights: True, 0" in ran.log(task)
        steps = [each["global_step"] for each in ran.records(task, "step")]
        assert steps == list(range(1, 21))
    assert ran.losses("worker-0") != ran.losses("worker-1")


def test_a_script_for_jax_runs_unchanged(project: Project) -> None:
    ran = project.run(add_program(project, "jax"), "workers")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"process {rank} of 2: total 3.0" in ran.log(task)
        assert ran.losses(task) == [3.0, 1.5, 1.0]


def test_a_killed_rank_is_named_and_the_gang_restarts(project: Project) -> None:
    program = add_program(project, "torch")
    fault = ("--fault", "kill worker-1 after 10 steps")
    ran = project.run(program, "workers", *fault, "--", "100", code=1)
    assert ran.summary["reason"] == (
        "worker-1 failed: killed by SIGKILL (the injected fault `kill worker-1 after 10 steps`)"
    )
    ran = project.run(program, "workers", *fault, "--on-failure", "restart:1", "--", "40")
    assert ran.states == dict.fromkeys(WORKERS, "succeeded")
    for rank, task in enumerate(WORKERS):
        assert f"rank {rank} of 2: same weights: True, 1" in ran.log(task)


def test_a_stopped_rank_is_named_within_the_time_limit(project: Project) -> None:
    program = add_program(project, "torch")
    fault = ("--fault", "pause:60s worker-1 after 10 steps", "--stall", "5s")
    ran = project.run(program, "workers", *fault, "--", "1000", code=1)
    assert "worker-1 is under the fault pause:60s" in ran.summary["reason"]
