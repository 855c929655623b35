"""Data parallelism in PyTorch, without `lab`: all ranks fit the line y = 3 x + 2 together.

Start it with `torchrun --nproc_per_node=2 first_ddp.py`: it starts one process for each rank.
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--learning_rate", type=float, default=0.05)
flags = parser.parse_args()

# ---- 1. The group: torchrun tells each process its rank, the number of ranks, and where rank 0 is.
dist.init_process_group("gloo")  # Gloo is for CPUs. It returns when all ranks are connected.
rank = dist.get_rank()

# ---- 2. The data: all ranks make the same 8,000 examples. The sampler deals them out.
torch.manual_seed(0)
inputs = 2 * torch.rand(8000, 1) - 1
outputs = 3 * inputs + 2 + 0.1 * torch.randn(8000, 1)  # The line, and noise.
examples = TensorDataset(inputs, outputs)
sampler = DistributedSampler(examples)  # With two ranks, each gets half of them in an epoch.
loader = DataLoader(examples, batch_size=50, sampler=sampler)

# ---- 3. The model: each rank has a copy. All copies begin with the values of rank 0.
line = torch.nn.Linear(1, 1)  # y = weight x + bias, with two random numbers.
model = DistributedDataParallel(line)
loss_function = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=flags.learning_rate)

# ---- 4. The training: `backward` averages the gradients of all ranks, so all copies stay equal.
step = 0
for epoch in range(flags.epochs):
    sampler.set_epoch(epoch)  # Without it, every epoch has the same order.
    for batch_inputs, batch_outputs in loader:
        optimizer.zero_grad()
        loss = loss_function(model(batch_inputs), batch_outputs)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:  # Every rank prints: their losses differ, because their batches do.
            print(f"rank {rank}: step {step}, loss {loss.item():.4f}", flush=True)
print(f"rank {rank}: y = {line.weight.item():.6f} x + {line.bias.item():.6f}", flush=True)
dist.destroy_process_group()
