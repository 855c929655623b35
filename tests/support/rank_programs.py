"""Programs of PyTorch and JAX as strangers write them: they know their place by variables."""

from __future__ import annotations

from pathlib import Path

from lab.protocol.runtimes import RUNTIMES
from tests.support.commands import ROOT
from tests.support.conditions import lacking

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


def needs(framework: str) -> None:
    runtime = RUNTIMES[framework]
    if runtime.python(ROOT) is None:
        lacking(f"{runtime.title} is not here; `make {runtime.target}` installs it")


def add_program(folder: Path, framework: str) -> str:
    """Write the program of a framework; return its name."""
    needs(framework)
    (folder / "train.py").write_text(SOURCES[framework])
    return "train.py"
