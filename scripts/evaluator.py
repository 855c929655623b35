"""An evaluator: a task that tests each checkpoint while the other tasks train.

Shows: the evaluator needs only the files of the checkpoints, so it delays no other task.
Try to break: the curve. Start the evaluator late, kill it, or save a checkpoint every second.

The workers and the parameter servers train as in `mnist_async.py`, and the chief regularly saves a
checkpoint. The evaluator is not part of their cluster. So it may run on another host, and may start
and stop at any time. If it is started by hand, it runs until Ctrl-C, because it is not notified of
the end of the training.
"""

import time

import tensorflow.compat.v1 as tf
from chief import newest_first
from mnist_model import MODELS, share_correct

from lab.task import sdk

flags = sdk.parse(sdk.experiment_flags("evaluator", __doc__))
if flags.job_name != "evaluator":
    import mnist_async  # noqa: F401  The other tasks train: importing the program runs it.

    raise SystemExit

recorder = sdk.begin_task(flags)

# ---- 1. The directory of the chief's checkpoints.
if not (checkpoint_dir := sdk.checkpoint_directory(flags)):
    raise sdk.ProgramError("there is no directory for checkpoints", "add --checkpoint_dir")
test = sdk.load_test(flags.data_dir)
model = MODELS[flags.model]
names = list(model.initial_parameters(flags.seed))
workers = {f"worker-{index}" for index in range(len(flags.worker_hosts))}
recorder.ready(f"evaluates checkpoints in {checkpoint_dir}")


def evaluate(checkpoint):
    """Return the test accuracy of a checkpoint, and its global step."""
    reader = tf.train.load_checkpoint(checkpoint)
    parameters = {name: reader.get_tensor(name) for name in names}
    accuracy = share_correct(model.logits(test.images, parameters), test.labels)
    return float(accuracy.numpy()), int(reader.get_tensor("global_step"))


# ---- 2. Evaluate each checkpoint once, in order, until the training has ended.
evaluated, accuracies = set(), []
while True:
    has_ended = sdk.ended_tasks() >= workers  # Checked first: no later checkpoint is missed.
    for checkpoint in reversed(newest_first(checkpoint_dir)):
        if checkpoint in evaluated:
            continue
        try:
            accuracy, step = evaluate(checkpoint)
        except (ValueError, tf.errors.NotFoundError):
            continue  # The chief keeps the newest five checkpoints, and has removed this one.
        evaluated.add(checkpoint)
        accuracies.append(accuracy)
        recorder.write("eval", global_step=step, accuracy=accuracy)
    if has_ended:
        break
    time.sleep(0.2)
if not accuracies:
    what = f"no checkpoint was saved in {checkpoint_dir}"
    raise sdk.ProgramError(what, "let the training save checkpoints")

recorder.write("result", name="checkpoints evaluated", value=len(accuracies), low=1)
recorder.write("result", name="accuracy gained", value=accuracies[-1] - accuracies[0], low=0)
recorder.write("final", accuracy=accuracies[-1], status="succeeded")
