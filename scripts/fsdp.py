"""PyTorch's fully sharded data parallelism (FSDP): each rank stores only a part of the model.

Shows: the ranks collect the parameters for each use and drop them again. The result is that of DDP.
Try to break: the network, which carries more than that of `ddp.py`. Kill one rank.

In `ddp.py` every rank stores the whole model. Here each matrix is divided by rows, and every rank
stores some of them. Before the forward pass, and again before the backward pass, it receives those
of the other ranks. After the backward pass it keeps only the mean gradients of its own rows.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch_group import lost_ranks_reported, own_device
from torch_model import MODELS, tensors

from lab.task.sdk import begin, load_mnist, report_failure, save_trained

flags, recorder = begin("fsdp", __doc__)

# ---- 1. The process group, as in `ddp.py`. The mesh says which ranks share the parameters: all.
recorder.ready(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
device = own_device()
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
report_failure(recorder)
rank, ranks = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh(device.type, (ranks,))

# ---- 2. The data, as in `ddp.py`: in an epoch each rank takes its own part of the images.
mnist = load_mnist(flags.data_dir)
examples = TensorDataset(*tensors(mnist.train.images, mnist.train.labels))
sampler = DistributedSampler(examples, seed=flags.seed, drop_last=True)
loader = DataLoader(examples, flags.batch_size, sampler=sampler, drop_last=True)
joined_size = flags.batch_size * ranks
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

# ---- 3. The model: every rank keeps its rows of the same initial values. In a step it collects all
# rows at once. A large model calls `fully_shard` for each layer, and collects one after another.
model = MODELS[flags.model](flags.seed).to(device)
shapes = {name: value.shape for name, value in model.named_parameters()}
model_size = sum(value.nbytes for value in model.parameters())
fully_shard(model, mesh=mesh, reshard_after_forward=True)
own_bytes = sum(value.to_local().nbytes for value in model.parameters())
learning_rate = flags.learning_rate or model.synchronous_rate
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)


def step(images, labels):
    """Make a step with the mean of all ranks' gradients; return the mean of their losses."""
    optimizer.zero_grad()
    loss = model(images, labels)  # It receives the parameters, and drops them at its end.
    loss.backward()  # It receives them again; then it sums and divides the gradients.
    optimizer.step()  # Each rank updates its own rows.
    total = loss.detach()
    dist.all_reduce(total)
    return total.item() / ranks


# ---- 4. The training.
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
with lost_ranks_reported():
    for epoch in range(-(-all_steps // steps_per_epoch)):  # rounded up
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader, 1 + epoch * steps_per_epoch):
            loss_now = step(images.to(device), labels.to(device))
            recorder.step(number, number, loss=loss_now)
            if number == all_steps:
                break

    # ---- 5. The whole model, for the test: every rank receives all rows.
    whole = {name: value.full_tensor() for name, value in model.named_parameters()}
    bytes_of_all = torch.tensor(own_bytes, device=device)
    dist.all_reduce(bytes_of_all)
trained = MODELS[flags.model](flags.seed).to(device)
trained.load_state_dict(whole)
if rank == 0:
    save_trained(flags, all_steps, trained.values())

# ---- 6. The memory: a rank stores its share of each matrix, rounded up to whole rows.
rows = {name: -(-shape[0] // ranks) for name, shape in shapes.items()}
most = sum(rows[name] * shape[1:].numel() * 4 for name, shape in shapes.items())
total = bytes_of_all.item()
recorder.write("result", name="bytes of this rank", value=own_bytes, high=most)
recorder.write("result", name="bytes of all ranks", value=total, low=model_size, high=model_size)
recorder.finish(accuracy=trained.accuracy(mnist.test))
dist.destroy_process_group()
