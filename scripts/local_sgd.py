"""Local SGD: every rank trains alone for some steps; then all ranks take the mean of their models.

Shows: one exchange for many steps. With `--average_every 1` the result is that of `ddp.py`.
Try to break: the accuracy, by rare means. Compare the time of a step on a slow network.

In `ddp.py` the ranks exchange gradients in each step, and all copies of the model are always equal.
Here each rank updates its own copy. The copies drift apart, until the ranks replace all of them by
their mean. The size of a message is the same, but there are fewer messages.
"""

import os

import torch
import torch.distributed as dist
from mnist_parameters import digest
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch_group import Waiting, lost_ranks_reported, own_device
from torch_model import MODELS, tensors

from lab.task.sdk import begin, load_mnist, report_failure, save_trained

flags, recorder = begin("local-sgd", __doc__)

# ---- 1. The process group, as in `ddp.py`.
recorder.ready(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}")
device = own_device()
dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
report_failure(recorder)
rank, ranks = dist.get_rank(), dist.get_world_size()

# ---- 2. The data, as in `ddp.py`: in an epoch each rank takes its own part of the images.
mnist = load_mnist(flags.data_dir)
examples = TensorDataset(*tensors(mnist.train.images, mnist.train.labels))
sampler = DistributedSampler(examples, seed=flags.seed, drop_last=True)
loader = DataLoader(examples, flags.batch_size, sampler=sampler, drop_last=True)
joined_size = flags.batch_size * ranks
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

# ---- 3. The model: every rank draws the same initial values, and has an optimizer of its own.
model = MODELS[flags.model](flags.seed).to(device)
learning_rate = flags.learning_rate or model.synchronous_rate
optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)


@torch.no_grad()
def average():
    """Replace the parameters of all ranks by their mean."""
    for parameter in model.parameters():
        dist.all_reduce(parameter)
        parameter.div_(ranks)


# ---- 4. The training. The loss is that of this rank: a mean of all ranks would be an exchange.
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
means, waiting = 0, Waiting()
with lost_ranks_reported():
    for epoch in range(-(-all_steps // steps_per_epoch)):  # rounded up
        sampler.set_epoch(epoch)
        for number, (images, labels) in enumerate(loader, 1 + epoch * steps_per_epoch):
            optimizer.zero_grad()
            loss = model(images.to(device), labels.to(device))
            loss.backward()
            optimizer.step()
            if number % flags.average_every == 0 or number == all_steps:
                with waiting:
                    average()
                means += 1
            recorder.step(number, number, loss=loss.item(), wait_time_s=waiting.take())
            if number == all_steps:
                break

    # ---- 5. The test: after the last mean, are all copies equal, bit by bit?
    digests = [None] * ranks
    dist.all_gather_object(digests, digest(model.values()))
different = sum(each != digests[0] for each in digests)
if rank == 0:
    save_trained(flags, all_steps, model.values())
expected = -(-all_steps // flags.average_every)  # rounded up: the last mean may come early
recorder.write("result", name="means", value=means, low=expected, high=expected)
recorder.write("result", name="ranks that differ", value=different, low=0, high=0)
recorder.finish(accuracy=model.accuracy(mnist.test))
dist.destroy_process_group()
