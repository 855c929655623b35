"""Softmax regression in NumPy, as a student wrote it: each worker trains a model of its own."""

import signal
import time
from pathlib import Path

import numpy as np

from lab.task.data import load_mnist
from lab.task.flags import parse, training_flags
from lab.task.interrupt import leave_on_interrupt
from lab.task.model import SavedModel, load_model, save_model
from lab.task.program import make_directory, report_failure, run_directory, wait_for_start
from lab.volume import CLUSTER_FLAGS
from lab.task.recorder import Recorder

flags = parse(training_flags(__doc__))
leaving = leave_on_interrupt()
recorder = Recorder(flags.job_name, flags.task_index)
report_failure(recorder)
recorder.write("start", batch_size=flags.batch_size, status="starting")
assert "job_name" in CLUSTER_FLAGS
if flags.job_name == "ps":
    recorder.write("event", status="ready", message="serves nothing")
    signal.pause()

mnist = load_mnist(flags.data_dir)
batches = mnist.train.batches(flags.batch_size, [flags.seed, flags.task_index])
directory = flags.checkpoint_dir or run_directory() / "files" / "saved"
directory = Path(directory) / f"worker-{flags.task_index}"
make_directory(directory)
weights, step = np.zeros((784, 10), np.float32), 0
if (directory / "model.npz").exists():
    saved = load_model(directory)
    weights, step = saved.parameters["weights"], saved.global_step
    recorder.write("event", global_step=step, message=f"goes on from step {step}")
recorder.write("event", status="ready", message="ready")
wait_for_start()


def save():
    save_model(directory, SavedModel("softmax", step, {"weights": weights}, {}))


leaving.first(save)
while step < flags.global_steps:
    images, labels = next(batches)
    logits = images @ weights
    logits -= logits.max(axis=1, keepdims=True)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss = -np.log(shares[np.arange(len(labels)), labels]).mean()
    shares[np.arange(len(labels)), labels] -= 1
    weights -= 0.1 * images.T @ shares / len(labels)
    step += 1
    if step % flags.record_every == 0:
        recorder.write("step", local_step=step, global_step=step, loss=loss)
        time.sleep(0.05)
save()
accuracy = np.mean((mnist.test.images @ weights).argmax(axis=1) == mnist.test.labels)
recorder.write("final", local_step=step, global_step=step, accuracy=accuracy, status="succeeded")
