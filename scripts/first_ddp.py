"""Data parallelism in PyTorch, without `lab`: all ranks fit the line y = 3 x + 2 together.

`torchrun --nproc_per_node=2 first_ddp.py` starts two processes: rank 0 and rank 1.
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

# ---- 1. The group: environment variables, set by torchrun, say who this is, and where rank 0 is.
dist.init_process_group("gloo")  # It returns when all ranks are connected. Gloo works on CPUs.
rank = dist.get_rank()

# ---- 2. The data: the same seed, so the same examples on every rank.
torch.manual_seed(0)
inputs = 2 * torch.rand(8000, 1) - 1
outputs = 3 * inputs + 2 + 0.1 * torch.randn(8000, 1)  # The line, and noise.
examples = TensorDataset(inputs, outputs)
sampler = DistributedSampler(examples)  # It shuffles and deals: of two ranks, each gets half.
batches = DataLoader(examples, batch_size=50, sampler=sampler)  # 50 for each rank

# ---- 3. The model: each rank has a copy.
line = torch.nn.Linear(1, 1)  # y = weight x + bias
model = DistributedDataParallel(line)  # Rank 0 sends its values to all copies.
loss_function = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=flags.learning_rate)

# ---- 4. The training: all ranks make each update together, so one count of steps is enough.
step = 0
for epoch in range(flags.epochs):
    sampler.set_epoch(epoch)  # Another order in each epoch.
    for batch_inputs, batch_outputs in batches:
        optimizer.zero_grad()  # Otherwise `backward` would add to the gradients of the last step.
        loss = loss_function(model(batch_inputs), batch_outputs)
        loss.backward()  # When it returns, the gradients are averaged over all ranks.
        optimizer.step()  # So each rank makes the same update, and all copies stay equal.
        step += 1
        if step % 50 == 0:  # Each rank prints the loss of its own batch.
            print(f"rank {rank}: step {step}, loss {loss.item():.4f}", flush=True)
print(f"rank {rank}: y = {line.weight.item():.6f} x + {line.bias.item():.6f}")
dist.destroy_process_group()
