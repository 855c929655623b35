"""PyTorch's DistributedDataParallel (DDP): a copy of the model in each rank; all copies stay equal.

Shows: DDP averages the gradients of all ranks while `backward` still computes the others.
Try to break: the ranks' equality. Kill one rank, or limit the network of one rank.

Every rank trains on its own batches. In each step all ranks exchange their gradients: each rank
receives the mean, and all make the same update. There is no parameter server. It is the idea of
`horovod_ring.py` and of `all_reduce.py`, here as a part of PyTorch.
"""

import os

import torch
import torch.distributed as dist
from mnist_parameters import digest
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch_group import Waiting, lost_ranks_reported, own_device
from torch_model import MODELS, tensors

from lab.task.sdk import begin, load_mnist, report_failure, save_trained

flags, recorder = begin("ddp", __doc__)

# ---- 1. The process group. `torchrun` usually starts the ranks, and sets their numbers and the
# address of rank 0 in variables. Here the agents do this. `init_process_group` reads the variables,
# and returns when all ranks are connected. Between GPUs, NCCL sends the data; between CPUs, Gloo.
recorder.ready(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
device = own_device()
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
report_failure(recorder)  # `init_process_group` has replaced this program's report of errors.
rank, ranks = dist.get_rank(), dist.get_world_size()

# ---- 2. The data. In an epoch all ranks draw the same order of the images, and each takes its own
# part of it. Without `drop_last` the sampler repeats images, to make all parts equally large.
mnist = load_mnist(flags.data_dir)
examples = TensorDataset(*tensors(mnist.train.images, mnist.train.labels))
sampler = DistributedSampler(examples, seed=flags.seed, drop_last=True)
loader = DataLoader(examples, flags.batch_size, sampler=sampler, drop_last=True)
joined_size = flags.batch_size * ranks
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

# ---- 3. The model: every rank draws different initial values. DDP sends those of rank 0 to all
# ranks. Later, it sends the gradients in buckets: one bucket while `backward` computes the next.
model = MODELS[flags.model](flags.seed + rank).to(device)
with lost_ranks_reported():
    ddp = DistributedDataParallel(model)
waiting = Waiting()
if device.type == "cpu":
    ddp.register_comm_hook(None, waiting.all_reduce)  # As without it, but it measures the time.
learning_rate = flags.learning_rate or model.synchronous_rate
optimizer = torch.optim.SGD(ddp.parameters(), lr=learning_rate)


def step(images, labels):
    """Make a step with the mean of all ranks' gradients; return the mean of their losses."""
    optimizer.zero_grad()
    loss = ddp(images, labels)
    loss.backward()  # It returns when the gradients are the means of all ranks.
    optimizer.step()
    total = loss.detach()
    with waiting:
        dist.all_reduce(total)
    return total.item() / ranks


# ---- 4. The training.
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
with lost_ranks_reported():
    for epoch in range(-(-all_steps // steps_per_epoch)):  # rounded up
        sampler.set_epoch(epoch)  # Without it, each epoch has the order of the first one.
        for number, (images, labels) in enumerate(loader, 1 + epoch * steps_per_epoch):
            loss_now = step(images.to(device), labels.to(device))
            recorder.step(number, number, loss=loss_now, wait_time_s=waiting.take())
            if number == all_steps:  # `--global_steps` may end within an epoch.
                break

    # ---- 5. The test: are all copies equal, bit by bit, and what is their accuracy?
    digests = [None] * ranks
    dist.all_gather_object(digests, digest(model.values()))
different = sum(each != digests[0] for each in digests)
if rank == 0:
    save_trained(flags, all_steps, model.values())
expected = int(os.environ["WORLD_SIZE"])
recorder.write("result", name="ranks compared", value=len(digests), low=expected, high=expected)
recorder.write("result", name="ranks that differ", value=different, low=0, high=0)
recorder.finish(accuracy=model.accuracy(mnist.test))
dist.destroy_process_group()
