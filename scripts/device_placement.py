"""The devices of operations: each way to choose them, and TensorFlow's placement.

Shows: each operation runs where the log says; each strategy gives the servers other bytes.
Try to break: the placement. Request a device that is not there, or write a strategy of your own.

A worker builds several small graphs and runs each with `log_device_placement`. It prints a table of
that log, a row for each operation, and writes the table to `placement-0.csv` in the run's
directory. It compares the log with TensorFlow's trace, which shows where each operation ran. Then
three strategies distribute a model's variables over the parameter servers, and the program adds up
the bytes on each server.
"""

import csv

import tensorflow.compat.v1 as tf
from mnist_model import MODELS
from placement import GreedyByBytes, server_config
from traces import as_written, placement_log, where

from lab.task.sdk import begin, run_directory

flags, recorder = begin("placement", __doc__)
myself = f"/job:worker/task:{flags.task_index}"
servers = len(flags.ps_hosts)

tf.disable_eager_execution()

cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
server = tf.train.Server(cluster, flags.job_name, flags.task_index, config=server_config(flags))
recorder.ready(f"serves at {server.target}")
if flags.job_name == "ps":
    server.join()
if flags.task_index > 0:  # One worker is enough.
    recorder.write("final", status="succeeded")
    raise SystemExit

table = [("how", "operation", "wanted", "got")]  # How a device was requested, and what it was.
not_as_logged = []  # Operations that ran elsewhere.


def look(how, operations, **options):
    """Run operations of the default graph; add them to the table; return where each ran."""
    filters = ["/job:ps", myself]
    config = as_written(device_filters=filters, log_device_placement=True, **options)
    with placement_log() as placed, tf.Session(server.target, config=config) as session:
        session.run(tf.global_variables_initializer())
        ran = where(session, operations)
    for operation in operations:
        name = getattr(operation, "op", operation).name
        table.append((how, name, operation.device, placed[name]))
        not_as_logged.extend([name] if placed[name] != ran[name] else [])
    return list(ran.values())


def setter(strategy=None):
    """Return the device setter: variables on the parameter servers, all else on this worker."""
    return tf.train.replica_device_setter(
        cluster=cluster, worker_device=myself, ps_strategy=strategy
    )


# ---- 1. tf.device: a full name, a partial name, a nested one, and none.
with tf.Graph().as_default():
    with tf.device("/job:ps/task:0/device:CPU:0"):
        whole = tf.add(1.0, 2.0, "whole")
        with tf.device(myself):  # The inner name overrides its own parts, and keeps the others.
            inner = tf.negative(whole, "inner")
    with tf.device("/job:ps"):
        part = tf.square(inner, "part")
    nowhere = tf.sqrt(part, "nowhere")  # TensorFlow decides: the session's own task.
    on = look("tf.device", [whole, inner, part, nowhere])
    expected = ["/job:ps/task:0", myself, "/job:ps/task:0", myself]

# ---- 2. Soft placement: for a device that does not exist, or that cannot run the operation.
with tf.Graph().as_default(), tf.device(f"{myself}/device:GPU:99"):
    wish = tf.add(1.0, 2.0, "wish")
    try:
        look("a GPU that is not there", [wish])
        refused = 0
    except tf.errors.InvalidArgumentError:
        refused = 1
        table.append(("a GPU that is not there", "wish", wish.device, "refused"))
    on += look("the same with soft placement", [wish], allow_soft_placement=True)
    expected += [myself]

# ---- 3. The device setter: variables to the parameter servers, everything else to the worker.
with tf.Graph().as_default(), tf.device(setter()):
    values = MODELS["mlp"].initial_parameters(0)
    variables = [tf.get_variable(name, initializer=value) for name, value in values.items()]
    norms = [
        tf.norm(variable.read_value(), name=f"norm_{variable.op.name}") for variable in variables
    ]
    total = tf.add_n(norms, "total")
    # A variable is read on its server; operations on its value run on the worker.
    reads = [variable.op for variable in variables]
    on += look("replica_device_setter", [*reads, *norms, total])
    expected += [variable.device for variable in variables]
    expected += [myself] * (len(norms) + 1)

right = sum(device.startswith(f"{place}/") for device, place in zip(on, expected, strict=True))
recorder.write("result", name="where they should be", value=right, low=len(on), high=len(on))
recorder.write("result", name="elsewhere than logged", value=len(not_as_logged), high=0)
recorder.write("result", name="refused without soft placement", value=refused, low=1, high=1)


# ---- 4. Strategies: they choose the parameter server of the next variable.
def by_layer(operation):
    """A custom strategy: the second layer on the last server, all others on the first."""
    return servers - 1 if operation.name.endswith("2") else 0


for name, strategy in {
    "round robin": None,
    "greedy": GreedyByBytes(servers),
    "by layer": by_layer,
}.items():
    with tf.Graph().as_default(), tf.device(setter(strategy)):
        held = [0] * servers
        for variable, value in values.items():
            created = tf.get_variable(variable, initializer=value)
            held[tf.DeviceSpec.from_string(created.device).task] += value.nbytes
            table.append((name, variable, created.device, "not run"))
    for index, count in enumerate(held):
        recorder.write("result", name=f"bytes on ps-{index}, {name}", value=count)

# ---- 5. The table.
for row in table:
    print("{:<28} {:<21} {:<32} {}".format(*row))
if run_dir := run_directory():
    with (run_dir / f"placement-{flags.task_index}.csv").open("w", newline="") as file:
        csv.writer(file).writerows(table)
recorder.write("final", status="succeeded")
