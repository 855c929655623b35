"""A parameter server in PyTorch, made of messages: no worker waits for another.

Shows: each message of a step, and in `torch_server.py` the server, which TensorFlow hides.
Try to break: kill a worker, or slow it down. Does the probe still equal the global step?

PyTorch has no parameter servers. Its package `rpc`, with which a tutorial builds one, is in
maintenance mode (https://docs.pytorch.org/docs/2.9/rpc.html). So this program sends and receives
tensors. A worker reads the parameters, computes the gradients of one batch, and sends these. The
server applies them at once. Compare with `mnist_async.py`.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch_group import lost_ranks_reported, own_device
from torch_model import MODELS, tensors
from torch_server import CHIEF, LEAVE, READ, SERVER, UPDATE, Server

from lab.task.sdk import begin, load_mnist, report_failure, save_trained

flags, recorder = begin("torch-async", __doc__)
model = MODELS[flags.model](flags.seed)
base_rate = flags.learning_rate or model.asynchronous_rate

# With several GPUs, `torchrun` starts a process for each of them; a worker needs one.
if int(os.environ.get("LOCAL_RANK", "0")):
    sys.exit()

# ---- 1. The process group: ps-0 is rank 0, and listens at its own address until all have come.
# The messages go through Gloo also if the workers have GPUs.
workers = len(flags.worker_hosts)
rank = SERVER if flags.job_name == "ps" else CHIEF + flags.task_index
recorder.ready(f"rank {rank}", learning_rate=base_rate)
address = f"tcp://{flags.ps_hosts[0]}"
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=1 + workers)
report_failure(recorder)  # `init_process_group` has replaced this report of errors.

# ---- 2. The data: every worker has all images, and draws batches in its own order.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1 + flags.task_index])
steps_per_epoch = mnist.train.batches_per_epoch(flags.batch_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch * workers

# ---- 3. The server. A vector has all parameters, and a probe for lost updates.
vector = torch.cat([parameters_to_vector(model.parameters()).detach(), torch.zeros(1)])
if flags.job_name == "ps":
    server = Server(vector, lambda step: base_rate * model.decay ** (step / 600), all_steps)
    with lost_ranks_reported():
        server.serve_all(workers)
    recorder.finish()
    sys.exit()

# ---- 4. A worker's part of the messages.
device = own_device()
model.to(device)


def ask(request):
    dist.send(torch.tensor([request]), SERVER)


def receive():
    """Receive the parameters into this worker's model; return the global step and the probe."""
    step = torch.tensor([0])
    dist.recv(step, SERVER)
    dist.recv(vector, SERVER)
    vector_to_parameters(vector[:-1].to(device), model.parameters())
    return step.item(), round(vector[-1].item())


def update():
    """Send the gradients; return the global step after their update, and their staleness."""
    gradients = parameters_to_vector(each.grad for each in model.parameters()).cpu()
    ask(UPDATE)
    dist.send(torch.cat([gradients, torch.zeros(1)]), SERVER)
    answer = torch.tensor([0, 0])
    dist.recv(answer, SERVER)
    return answer.tolist()


# ---- 5. The training.
own_steps = sys.maxsize if flags.global_steps else flags.epochs * steps_per_epoch
recorder.begin_training(flags, local_steps_per_epoch=steps_per_epoch)
with lost_ranks_reported():
    for local_step in range(1, own_steps + 1):
        images, labels = (each.to(device) for each in tensors(*next(batches)))
        ask(READ)
        receive()
        model.zero_grad()
        loss = model(images, labels)
        loss.backward()
        global_step, staleness = update()
        if not global_step:
            break
        recorder.step(local_step, global_step, loss=loss.item(), staleness=staleness)

    # ---- 6. The test with the current parameters. The chief waits until all workers have left,
    # then tests and saves the final parameters.
    ask(READ)
    step_now, _ = receive()
    accuracy = model.accuracy(mnist.test)
    recorder.write("eval", global_step=step_now, accuracy=accuracy)
    ask(LEAVE)
    if rank == CHIEF:
        last, probe = receive()
        end = {"accuracy": model.accuracy(mnist.test), "message": "final parameters"}
        recorder.write("eval", global_step=last, probe=probe, **end)
        save_trained(flags, last, model.values())
recorder.finish(accuracy=accuracy)
