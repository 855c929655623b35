"""An Estimator: the program defines a model and its input, and TensorFlow 1 does the rest.

Shows: one call reads TF_CONFIG, and serves, trains, saves or tests, as this task must.
Try to break: the end. Kill the chief, a worker or the evaluator, and see which tasks notice it.

Every task of the cluster calls `train_and_evaluate` with the same model. A parameter server serves,
the chief initializes, saves and trains, workers train, and the evaluator tests each checkpoint. The
servers, the device setter and the sessions of `mnist_async.py` are inside the Estimator. With
`--strategy=mirrored` there is one task, whose replicas all-reduce their gradients.
"""

import json
import os

import tensorflow as tf
import tensorflow.compat.v1 as tf1
from mnist_model import MODELS

from lab.task import sdk
from lab.task.tf1.sessions import shorten_polling

flags, recorder = sdk.begin("estimator", __doc__)
all_steps = flags.global_steps or 3000

# ---- 1. The cluster that trains. The evaluator is not part of it: no task waits for it, and it
# only needs checkpoints. One task with a strategy has no cluster.
tf_config = json.loads(os.environ.get("TF_CONFIG", "{}"))
if flags.strategy == "mirrored":
    tf_config = {}
elif "cluster" not in tf_config:
    raise sdk.ProgramError("TF_CONFIG has no cluster, which Estimator needs", "set TF_CONFIG")
cluster = tf_config.get("cluster", {})
cluster.pop("evaluator", None)
os.environ["TF_CONFIG"] = json.dumps(tf_config)
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # Use only the GPU memory that is needed.
tf1.logging.set_verbosity(tf1.logging.ERROR)

# ---- 2. The strategy, if there is one, and its replicas.
strategy, session_config, replicas = None, None, 1
if flags.strategy == "mirrored":
    gpus = len(tf.config.list_physical_devices("GPU"))
    kind, replicas = ("GPU", gpus) if gpus else ("CPU", flags.cpu_replicas)
    session_config = tf1.ConfigProto(
        device_count={"CPU": flags.cpu_replicas}, allow_soft_placement=True
    )
    strategy = tf.distribute.MirroredStrategy([f"{kind}:{index}" for index in range(replicas)])

# ---- 3. RunConfig: it reads TF_CONFIG, and sets how often the chief saves.
if not (checkpoint_dir := sdk.checkpoint_directory(flags)):
    raise sdk.ProgramError("there is no directory for checkpoints", "add --checkpoint_dir")
config = tf.estimator.RunConfig(
    model_dir=str(checkpoint_dir),
    save_checkpoints_secs=flags.checkpoint_every,
    session_config=session_config,
    train_distribute=strategy,
    experimental_max_worker_delay_secs=0,  # Otherwise worker n begins 5 (n + 1) seconds late.
)

# Compare RunConfig with the cluster. The chief counts as a worker. The evaluator has no cluster. A
# single task without a cluster is its own chief.
counted = {
    "master": "",
    "task_id": flags.task_index,
    "num_ps_replicas": 0,
    "num_worker_replicas": 0 if cluster else 1,
    "is_chief": flags.job_name == "chief" or not cluster,
}
if flags.job_name in cluster:
    counted["master"] = f"grpc://{cluster[flags.job_name][flags.task_index]}"
    counted["num_ps_replicas"] = len(cluster.get("ps", []))
    trainers = [*cluster.get("chief", []), *cluster.get("worker", [])]
    counted["num_worker_replicas"] = len(trainers)
says = {name: getattr(config, name) for name in counted}
message = ", ".join(f"{name}={value!r}" for name, value in says.items())
recorder.write("event", message=f"RunConfig: {message}")
differing = sum(says[name] != counted[name] for name in counted)
recorder.write("result", name="RunConfig fields that differ", value=differing, low=0, high=0)

# ---- 4. The model: one function, which Estimator calls to build each graph.
model = MODELS[flags.model]
own_rate = model.synchronous_rate if strategy else model.asynchronous_rate
replicas_built, accuracies = set(), []


def model_fn(features, labels, mode):
    """Build the graph for training or evaluation; Estimator has set the variables' devices."""
    parameters = {
        name: tf1.get_variable(name, initializer=value)
        for name, value in model.initial_parameters(flags.seed).items()
    }
    logits = model.logits(features, parameters)
    loss = model.loss(logits, labels, parameters)
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = tf1.metrics.accuracy(labels, tf.argmax(logits, 1))
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    replicas_built.add(tf.distribute.get_replica_context().replica_id_in_sync_group)
    optimizer = tf1.train.GradientDescentOptimizer(
        flags.learning_rate or own_rate, use_locking=True
    )
    update = optimizer.minimize(loss, global_step=tf1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=update)


# ---- 5. The input: every task that trains goes through all images in an order of its own, because
# Estimator divides no data among the tasks. The replicas of a task take its batches in turn.
def training_input():
    """Endless batches; among the tasks that train, the chief is number 0 and worker n is n + 1."""
    batches = sdk.load_mnist(flags.data_dir).train.batches
    return tf.data.Dataset.from_generator(
        lambda: batches(flags.batch_size, [flags.seed, 1 + config.global_id_in_cluster]),
        output_signature=(tf.TensorSpec([None, sdk.PIXELS]), tf.TensorSpec([None], tf.int32)),
    )


def test_input():
    """The test images, once."""
    test = sdk.load_test(flags.data_dir)
    return tf.data.Dataset.from_tensor_slices((test.images, test.labels)).batch(1000)


# ---- 6. The records. Estimator calls a hook around each step, and an exporter after evaluations.
class Steps(tf1.train.SessionRunHook):
    """Waits for the common start, and reports the steps of this task."""

    local_step = 0

    def begin(self):
        self.global_step = tf1.train.get_global_step()
        (self.loss,) = tf1.get_collection(tf1.GraphKeys.LOSSES)  # Estimator put the loss there.

    def after_create_session(self, session, coord):
        recorder.ready("has a session")
        examples_per_step = flags.batch_size * replicas
        recorder.begin_training(flags, examples_per_step=examples_per_step, last_step=all_steps)

    def before_run(self, run_context):
        return tf1.train.SessionRunArgs(self.loss)

    def after_run(self, run_context, run_values):
        self.local_step += 1
        global_step_now = run_context.session.run(self.global_step)  # Other tasks may be ahead.
        recorder.step(self.local_step, global_step_now, loss=run_values.results)


class Evaluations(tf.estimator.Exporter):
    """Records each evaluation, and saves the parameters of the last one."""

    name = "evaluations"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        step, accuracy = eval_result["global_step"], eval_result["accuracy"]
        recorder.write("eval", global_step=step, accuracy=accuracy, loss=eval_result["loss"])
        accuracies.append(accuracy)
        if is_the_final_export:
            names = model.initial_parameters(flags.seed)
            values = {name: tf.train.load_variable(checkpoint_path, name) for name in names}
            sdk.save_trained(flags, int(step), values)


# ---- 7. Every task returns when all steps are made, except a parameter server, which never does.
if flags.job_name in {"ps", "evaluator"}:
    recorder.write("event", status="ready", message=f"starts as {flags.job_name}")
shorten_polling()  # Otherwise workers check only every 30 seconds if the chief has initialized.
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(training_input, max_steps=all_steps, hooks=[Steps()]),
    tf.estimator.EvalSpec(
        test_input, steps=None, exporters=Evaluations(), start_delay_secs=0, throttle_secs=1
    ),
)

# ---- 8. The results.
if strategy:
    built = len(replicas_built)
    recorder.write("result", name="replicas built", value=built, low=replicas, high=replicas)
if accuracies:
    gained = accuracies[-1] - accuracies[0]
    recorder.write("result", name="checkpoints evaluated", value=len(accuracies), low=1)
    recorder.write("result", name="accuracy gained", value=gained, low=0)
    recorder.write("final", accuracy=accuracies[-1], status="succeeded")
else:
    recorder.finish()
