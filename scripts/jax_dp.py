"""JAX: data parallelism without a word of communication in the program.

Shows: the program says how arrays lie on the devices; the compiler adds the all-reduce.
Try to break: the equality of the copies. Kill one process, or limit its network.

Every process runs the same program. Together they see one array for a joined batch, of which each
process holds its own part, and one array for each parameter, of which each process holds a copy.
`step` is written as for one device. The mean over the joined batch needs the images of all
processes, so the compiled step sums the gradients of all of them. Compare with `ddp.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax_model import MODELS
from mnist_parameters import digest, share_correct

from lab.task.sdk import LOST_CONTACT, ProgramError, begin, load_mnist, save_trained

flags, recorder = begin("jax-dp", __doc__)

# ---- 1. The processes. `initialize` finds the address of process 0, the number of processes and
# its own number in variables that the agents set. It returns when all processes are connected.
processes = len(flags.worker_hosts)
recorder.ready(f"process {flags.task_index} of {processes}")
jax.distributed.initialize()
process = jax.process_index()

# ---- 2. The devices of all processes, in one row, and two ways to lay an array on them.
mesh = Mesh(jax.devices(), ["batch"])
divided = NamedSharding(mesh, PartitionSpec("batch"))  # each device holds a part of the rows
copied = NamedSharding(mesh, PartitionSpec())  # each device holds all

# ---- 3. The data: in an epoch each process takes its own part of the images.
mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, 1], part=process, parts=processes)
joined_size = flags.batch_size * processes
steps_per_epoch = mnist.train.batches_per_epoch(joined_size)
all_steps = flags.global_steps or flags.epochs * steps_per_epoch

# ---- 4. The model: every process draws the same initial values.
model = MODELS[flags.model]
learning_rate = flags.learning_rate or model.synchronous_rate
parameters = {
    name: jax.make_array_from_process_local_data(copied, value)
    for name, value in model.initial_parameters(flags.seed).items()
}


@jax.jit(out_shardings=copied)
def step(parameters, images, labels):
    """Return the loss of the joined batch, and the parameters after the update."""
    loss, gradients = jax.value_and_grad(model.loss)(parameters, images, labels)
    changes = jax.tree.map(lambda gradient: -learning_rate * gradient, gradients)
    return loss, jax.tree.map(jnp.add, parameters, changes)


# ---- 5. The training.
recorder.begin_training(
    flags, local_steps_per_epoch=steps_per_epoch, examples_per_step=joined_size, last_step=all_steps
)
try:
    for number in range(1, all_steps + 1):
        joined = [jax.make_array_from_process_local_data(divided, each) for each in next(batches)]
        loss, parameters = step(parameters, *joined)
        recorder.step(number, number, loss=float(loss))  # `float` waits for the end of the step.

    # ---- 6. The test: are all copies equal, bit by bit, and what is their accuracy?
    values = {name: np.asarray(value.addressable_data(0)) for name, value in parameters.items()}
    digests = process_allgather(np.frombuffer(digest(values), np.uint8))
except jax.errors.JaxRuntimeError as error:
    if "Gloo" not in str(error) and "NCCL" not in str(error):
        raise
    raise ProgramError(f"{LOST_CONTACT} another process", "see how it ended") from None
different = sum(not np.array_equal(each, digests[0]) for each in digests)
accuracy = share_correct(model.logits(values, mnist.test.images), mnist.test.labels)
if process == 0:
    save_trained(flags, all_steps, values)
count = len(digests)
recorder.write("result", name="processes compared", value=count, low=processes, high=processes)
recorder.write("result", name="processes that differ", value=different, low=0, high=0)
recorder.finish(accuracy=accuracy)
