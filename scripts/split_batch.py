"""A worker with several GPUs: its batch is split among them, and their gradients are averaged.

Each GPU gets a part of the batch and a copy of the model's operations, a tower. All towers compute
from the same parameters. The mean of their gradients, weighted by the sizes of their parts, is the
gradient of the whole batch. So the worker makes the same update as with one GPU. Without GPUs,
several logical devices of one CPU are used.
"""

from itertools import pairwise

import tensorflow.compat.v1 as tf

from lab.task.sdk.flags import positive
from lab.task.sdk.program import ProgramError


def add_flag(parser):
    """Add `--towers` to a program's flags."""
    parser.add_argument(
        "--towers",
        type=positive,
        help="the number of GPUs that share a batch (default: all; without GPUs: 1 CPU device)",
    )


class Towers:
    """The devices among which a worker splits its batches."""

    def __init__(self, flags, worker=""):
        gpus = len(tf.config.list_physical_devices("GPU"))
        self.count = flags.towers or max(1, gpus)
        if gpus and self.count > gpus:
            raise ProgramError(
                f"{self.count} towers need as many GPUs, there are {gpus}", "use fewer --towers"
            )
        if self.count > flags.batch_size:
            raise ProgramError(
                f"a batch of {flags.batch_size} cannot be split among {self.count} towers",
                "use a larger --batch_size or fewer --towers",
            )
        kind = "GPU" if gpus else "CPU"
        self.devices = [f"{worker}/device:{kind}:{index}" for index in range(self.count)]
        self.cpu_devices = 1 if gpus else self.count

    def compute(self, model, images, labels, parameters):
        """Return the logits of a batch, its loss, and the gradients of the parameters."""
        if self.count == 1:  # TensorFlow chooses the device.
            return compute(model, images, labels, parameters)
        size = tf.shape(labels)[0]
        ends = [size * index // self.count for index in range(self.count + 1)]
        sizes = tf.stack([end - begin for begin, end in pairwise(ends)])
        image_parts = tf.split(images, sizes, num=self.count)
        label_parts = tf.split(labels, sizes, num=self.count)
        logits, losses, gradients = [], [], []
        for tower, device in enumerate(self.devices):
            with tf.device(device), tf.name_scope(f"tower_{tower}"):
                own_logits, loss, own_gradients = compute(
                    model, image_parts[tower], label_parts[tower], parameters
                )
                share = tf.cast(sizes[tower], tf.float32) / tf.cast(size, tf.float32)
                logits.append(own_logits)
                losses.append(share * loss)
                gradients.append([share * gradient for gradient in own_gradients])
        of_the_batch = [tf.add_n(several) for several in zip(*gradients, strict=True)]
        return tf.concat(logits, 0), tf.add_n(losses), of_the_batch


def compute(model, images, labels, parameters):
    """The same on one device."""
    logits = model.logits(images, parameters)
    loss = model.loss(logits, labels, parameters)
    return logits, loss, tf.gradients(loss, list(parameters.values()))
