"""Local SGD with an outer momentum: the ranks exchange rarely, and the exchange is a step itself.

Each rank trains alone for some steps. Then the ranks average how far they have moved, and take this
mean as a gradient: an optimizer with Nesterov's momentum makes the outer step with it. All ranks go
on from the same new parameters. The method is DiLoCo (Douillard et al. 2023, arXiv:2311.08105),
which trains language models in data centers far apart. There the inner optimizer is AdamW, here it
is SGD.
"""

import argparse
import hashlib

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector


class OuterOptimizer:
    """Steps the parameters of all ranks together. A vector holds the values of all parameters.

    `parameters` are this rank's, which the inner optimizer changes. `reference` has their values
    after the last exchange, the same on all ranks, and `velocity` is the momentum.
    """

    def __init__(self, parameters, rate, momentum, group):
        self.parameters = list(parameters)
        self.rate, self.momentum, self.group = rate, momentum, group
        self.reference = parameters_to_vector(self.parameters).detach()  # a copy
        self.velocity = torch.zeros_like(self.reference)

    def gradient(self):
        """Return the gradient for the outer step, from the change since the last exchange."""
        # --- your code: a vector like `reference`, without a graph. Finding its sign is your part:
        # which way did this rank move, and which way does SGD step? ---
        raise NotImplementedError("`gradient` in outer_step.py has no code yet: what has changed?")
        # --- end ---

    def mean(self, vector):
        """Return the mean of all ranks' vectors; each rank calls it with its own."""
        # --- your code: with one `self.group.all_reduce(vector)`, which replaces the vector by the
        # sum of all ranks' vectors, in place. `self.group.ranks` is the number of ranks. ---
        raise NotImplementedError("`mean` in outer_step.py has no code yet: ask all ranks.")
        # --- end ---

    def move(self, gradient):
        """Move `reference` by one step of SGD with Nesterov's momentum, and update `velocity`."""
        # --- your code: as `torch.optim.SGD` with `nesterov=True` and `dampening=0`. The formulas
        # are in https://docs.pytorch.org/docs/2.9/generated/torch.optim.SGD.html, where `velocity`
        # is called b. Leave out what is about weight decay and `maximize`. ---
        raise NotImplementedError("`move` in outer_step.py has no code yet: the outer step.")
        # --- end ---

    @torch.no_grad()
    def put_back(self):
        """Give the values of `reference` to the parameters, each of its own shape."""
        # --- your code: the inner optimizer knows the parameters, so change their values, and keep
        # the objects. They must not share memory with `reference`, which has to stay. ---
        raise NotImplementedError("`put_back` in outer_step.py has no code yet: go on from here.")
        # --- end ---

    def step(self):
        """Exchange: afterwards all ranks have the same new parameters."""
        # --- your code: the four methods above, in the right order ---
        raise NotImplementedError("`step` in outer_step.py has no code yet: join the parts.")
        # --- end ---


class Group:
    """This rank's place among all; `sent` counts the bytes of the vectors that it has exchanged."""

    def __init__(self):
        self.rank, self.ranks, self.sent = dist.get_rank(), dist.get_world_size(), 0

    def all_reduce(self, tensor):
        """Replace the tensor by the sum of all ranks' tensors."""
        self.sent += tensor.nbytes
        dist.all_reduce(tensor)


def main():
    from lab.task.sdk import load_mnist  # here, because the tests need no images

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=550)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=0.1)
    parser.add_argument("--exchange_every", type=int, default=50)
    parser.add_argument("--outer_rate", type=float, default=0.7)
    parser.add_argument("--outer_momentum", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()

    # ---- 1. The group, and this rank's part of the images. Gloo works on CPUs.
    dist.init_process_group("gloo")
    group = Group()
    mnist = load_mnist()
    place = {"part": group.rank, "parts": group.ranks}
    batches = mnist.train.batches(flags.batch_size, flags.seed, **place)

    # ---- 2. The model: as many parameters as the `mlp` of lab, the same values on all ranks.
    torch.manual_seed(flags.seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(784, 500), torch.nn.ReLU(), torch.nn.Linear(500, 10)
    )
    inner = torch.optim.SGD(model.parameters(), lr=flags.learning_rate)
    outer = OuterOptimizer(model.parameters(), flags.outer_rate, flags.outer_momentum, group)

    # ---- 3. The training: inner steps alone, and rarely an outer step together.
    exchanges = 0
    for step in range(1, flags.steps + 1):
        images, labels = map(torch.from_numpy, next(batches))
        inner.zero_grad()
        loss = cross_entropy(model(images), labels.long())
        loss.backward()
        inner.step()
        if step % flags.exchange_every == 0 or step == flags.steps:
            outer.step()
            exchanges += 1
            print(f"step {step}, loss {loss.item():.4f}", flush=True)

    # ---- 4. The results: are all copies equal, bit by bit? How much did this rank exchange?
    digests = [None] * group.ranks
    parameters = parameters_to_vector(model.parameters()).detach().numpy()
    dist.all_gather_object(digests, hashlib.sha256(parameters.tobytes()).hexdigest())
    different = sum(digest != digests[0] for digest in digests)
    images, labels = map(torch.from_numpy, (mnist.test.images, mnist.test.labels))
    with torch.no_grad():
        logits = model(images)
        loss = cross_entropy(logits, labels.long()).item()
    # The accuracy first: after a result, `lab` reads no other printed numbers.
    print(f"final accuracy = {(logits.argmax(1) == labels).float().mean().item():.4f}")
    print(f"lab kind=result name=different value={different} low=0 high=0")
    print(f"lab kind=result name=exchanges value={exchanges}")
    print(f"lab kind=result name=MB value={group.sent / 1e6}")
    print(f'lab kind=result name="test loss" value={loss}')
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
