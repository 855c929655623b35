"""The two models of `mnist_model.py` as modules of PyTorch: they compute the loss of a batch.

Nothing here is distributed. The loss is a part of the module: what surrounds a module, such as DDP
or FSDP, then sees each use of its parameters.
"""

import mnist_parameters
import torch
from torch import nn
from torch.nn.functional import cross_entropy, relu


class Network(nn.Module):
    """A module with the initial parameters of all frameworks, by the same names."""

    def __init__(self, seed):
        super().__init__()
        for name, value in self.initial_parameters(seed).items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(value)))

    def values(self):
        """The parameters by name, as NumPy arrays."""
        return {name: value.detach().cpu().numpy() for name, value in self.named_parameters()}

    @torch.no_grad()
    def accuracy(self, examples):
        """The share of images whose largest logit is that of the label."""
        (first, *_) = self.parameters()
        logits = self.logits(torch.from_numpy(examples.images).to(first.device))
        return mnist_parameters.share_correct(logits.cpu().numpy(), examples.labels)


class Softmax(Network, mnist_parameters.Softmax):
    """Softmax regression, 784 → 10."""

    def logits(self, images):
        """Images [n, 784] → logits [n, 10]."""
        return images @ self.weights + self.biases

    def forward(self, images, labels):
        """The mean cross-entropy of a batch."""
        return cross_entropy(self.logits(images), labels)


class Mlp(Network, mnist_parameters.Mlp):
    """One hidden layer, 784 → 500 → 10."""

    def logits(self, images):
        """Images [n, 784] → logits [n, 10]."""
        return relu(images @ self.weights1 + self.biases1) @ self.weights2 + self.biases2

    def forward(self, images, labels):
        """The mean cross-entropy of a batch, and a penalty on large weights."""
        penalty = (self.weights1.square().sum() + self.weights2.square().sum()) / 2
        return cross_entropy(self.logits(images), labels) + self.l2 * penalty


MODELS = {"softmax": Softmax, "mlp": Mlp}


def tensors(images, labels):
    """NumPy arrays as tensors; PyTorch wants labels of 64 bits."""
    return torch.from_numpy(images), torch.from_numpy(labels).long()
