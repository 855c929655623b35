"""One host with several GPUs: a tower on each GPU, and their gradients averaged.

Shows: the mean of the towers' gradients is the gradient of the joined batch.
Try to break: the speed. Count examples a second with more towers, and with larger batches.

A tower is a copy of the model's operations on one GPU. The variables are shared, and placed on the
CPU. Each tower gets its own batch from a file of TFRecords. When all towers have computed their
gradients, the CPU averages them and makes one update: the update of the joined batch. Without GPUs,
several logical devices of one CPU are used. The hyperparameters, and the pixel values from 0 to
255, are those of the blog post whose program this one follows.
"""

import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf
from compare import apart
from mnist_model import MODELS, share_correct

from lab.task.sdk import PIXELS, ProgramError, begin, load_mnist, make_directory, run_directory

flags, recorder = begin("towers", __doc__)
all_steps = flags.global_steps or 1000
model = MODELS["mlp"]
base_rate = flags.learning_rate or 0.001
tf.disable_eager_execution()

gpus = [f"/gpu:{index}" for index in range(len(tf.config.list_physical_devices("GPU")))]
devices = gpus or [f"/cpu:{index}" for index in range(flags.towers)]
run_dir = run_directory() or flags.checkpoint_dir
if not run_dir:
    raise ProgramError("there is no directory for checkpoints", "add --checkpoint_dir")
make_directory(run_dir / "checkpoints")
mnist = load_mnist(flags.data_dir)

# ---- 1. The data, as a file of records: bytes of the image, its size, its label.
scratch = tempfile.TemporaryDirectory()  # Removed at the end of the program.
records = flags.records or f"{scratch.name}/mnist.tfrecord"

with tf.io.TFRecordWriter(records) as writer:
    for pixels, label in zip(mnist.train.pixels, mnist.train.labels, strict=True):
        features = {
            "image_raw": tf.train.Feature(bytes_list=tf.train.BytesList(value=[pixels.tobytes()])),
            "pixels": tf.train.Feature(int64_list=tf.train.Int64List(value=[PIXELS])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        example = tf.train.Example(features=tf.train.Features(feature=features))
        writer.write(example.SerializeToString())


# ---- 2. The input pipeline: read, shuffle, and make batches, one for each tower and step.
def read(serialized):
    features = {
        "image_raw": tf.FixedLenFeature([], tf.string),
        "label": tf.FixedLenFeature([], tf.int64),
    }
    found = tf.parse_single_example(serialized, features)
    image = tf.decode_raw(found["image_raw"], tf.uint8)
    return tf.cast(tf.reshape(image, [PIXELS]), tf.float32), tf.cast(found["label"], tf.int32)


dataset = tf.data.TFRecordDataset(records).map(read, num_parallel_calls=2)
dataset = dataset.shuffle(10_000, seed=flags.seed).repeat().batch(flags.batch_size).prefetch(2)
batches = tf.data.make_one_shot_iterator(dataset)

# ---- 3. The shared variables, on the CPU.
with tf.device("/cpu:0"):
    variables = {
        name: tf.get_variable(name, initializer=value)
        for name, value in model.initial_parameters(flags.seed).items()
    }
    global_step = tf.train.get_or_create_global_step()
    rate = tf.train.exponential_decay(base_rate, global_step, 600, model.decay)

# ---- 4. A tower on each device: its own batch, the shared variables, its own gradients.
parts, losses, gradients_of_towers = [], [], []
for index, device in enumerate(devices):
    with tf.device(device), tf.name_scope(f"tower_{index}"):
        images, labels = batches.get_next()
        loss = model.loss(model.logits(images, variables), labels, variables)
        gradients_of_towers.append(tf.gradients(loss, list(variables.values())))
        losses.append(loss)
        parts.append((images, labels))

# ---- 5. The update: the mean of the towers' gradients, and moving averages of the variables.
with tf.device("/cpu:0"):
    gradients = [
        tf.add_n(several) / len(devices) for several in zip(*gradients_of_towers, strict=True)
    ]
    optimizer = tf.train.GradientDescentOptimizer(rate)
    update = optimizer.apply_gradients(zip(gradients, variables.values(), strict=True), global_step)
    follower = tf.train.ExponentialMovingAverage(model.moving_average, global_step)
    with tf.control_dependencies([update]):
        train = follower.apply(list(variables.values()))

    # For comparison: the gradients of the joined batch of all towers.
    all_images, all_labels = (tf.concat(part, 0) for part in zip(*parts, strict=True))
    joined_loss = model.loss(model.logits(all_images, variables), all_labels, variables)
    joined_gradients = tf.gradients(joined_loss, list(variables.values()))

    test_images = tf.placeholder(tf.float32, [None, PIXELS])
    test_labels = tf.placeholder(tf.int32, [None])
    accuracy = share_correct(model.logits(test_images, variables), test_labels)
    tf.summary.scalar("learning_rate", rate)
    for index, loss in enumerate(losses):
        tf.summary.scalar(f"tower_{index}/loss", loss)
    for (name, variable), gradient in zip(variables.items(), gradients, strict=True):
        tf.summary.histogram(f"variables/{name}", variable)
        tf.summary.histogram(f"gradients/{name}", gradient)
    summaries = tf.summary.merge_all()
saver = tf.train.Saver()

# ---- 6. The training.
config = tf.ConfigProto(allow_soft_placement=True, device_count={"CPU": len(devices)})
config.gpu_options.allow_growth = True
recorder.ready(f"towers on {', '.join(devices)}")
with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    both = zip(*session.run([gradients, joined_gradients]), strict=True)
    difference = max(apart([mean], [joined]) / np.abs(joined).max() for mean, joined in both)

    board = tf.summary.FileWriter(str(run_dir / "tb" / recorder.task), session.graph)
    examples_a_step = flags.batch_size * len(devices)
    recorder.begin_training(flags, examples_per_step=examples_a_step, last_step=all_steps)
    began = printed_at = time.monotonic()
    for step in range(all_steps):
        if step % flags.summary_every == 0:
            _, losses_now, summary = session.run([train, losses, summaries])
            board.add_summary(summary, step)
        else:
            _, losses_now = session.run([train, losses])
        if (step + 1) % flags.summary_every == 0:
            now = time.monotonic()
            examples = flags.summary_every * examples_a_step
            print(f"step {step + 1}: {examples / (now - printed_at):,.0f} examples/s")
            printed_at = now
        if step in (0, all_steps - 1):
            saver.save(session, str(run_dir / "checkpoints" / "towers"), step)
        recorder.step(step + 1, step + 1, loss=np.mean(losses_now))
    speed = all_steps * examples_a_step / (time.monotonic() - began)
    board.close()
    test = {test_images: mnist.test.pixels.astype(np.float32), test_labels: mnist.test.labels}
    accuracy_now = session.run(accuracy, test)

recorder.write("result", name="apart from the joined batch", value=difference, low=0, high=1e-4)
recorder.write("result", name="examples a second", value=speed)
recorder.finish(accuracy=accuracy_now)
