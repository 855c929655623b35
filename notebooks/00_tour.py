# %% [markdown]
# # A tour of the cluster
#
# [中文](zh/00_tour.ipynb)
#
# **Goal.** You can read a config and the plan that `lab` makes from it, start programs on it, and
# read their records.
#
# **You need** neither a GPU nor Docker, and 20 minutes.
#
# One host can simulate several machines. All notebooks use these terms:
#
# | term | meaning |
# | --- | --- |
# | host | the computer that runs everything, with its GPUs |
# | node | a part of the host that behaves like a machine: hostname, address, some GPUs |
# | task | one process of the training, such as `worker-1` |
# | job | the role of a task: `ps` (parameter server), `worker` and others |
# | config | the file that describes the cluster |
# | cluster spec | the addresses of all tasks: for each job the list of its tasks' addresses |
# | run | one execution of a program on a cluster, and the directory with its results |

# %%
import json
import tempfile
from pathlib import Path

import numpy as np
from common import at_root, check, load_model, load_test

import lab

at_root()

# %% [markdown]
# ## Predict
#
# - Three servers start, and each of them requests a greeting from all servers. How many greetings
#   is that?
# - Two workers each pass once over 55,000 images, in batches of 100. How many updates do they make
#   together, and from how many images?
#
# ## Run
#
# ### The config
#
# A cluster begins as a file, the config. This one describes a laptop without GPUs, divided into
# three nodes. The first node has a parameter server, and each of the others has a worker.

# %%
print(Path("clusters/laptop.yaml").read_text())

# %% [markdown]
# `lab.load` reads the config and refuses it if it has errors. `lab.plan` decides on which node each
# task runs. Neither of them starts anything.

# %%
cluster = lab.load("clusters/laptop.yaml")
plan = lab.plan(cluster, gpus="none")
for task in plan.tasks:
    print(f"{task.name:10} on node {task.node}, port {task.port}")

# %% [markdown]
# The plan gives TensorFlow's cluster spec. Each task gets the *same* list, and its own position in
# this list. TensorFlow reads both from an environment variable, `TF_CONFIG`:

# %%
spec = plan.cluster_spec()
tf_config = {"cluster": spec, "task": {"type": "worker", "index": 1}}
print(json.dumps(tf_config, indent=2))

# %% [markdown]
# The tasks of `clusters/book.yaml` share one node:

# %%
for task in lab.plan(lab.load("clusters/book.yaml"), gpus="none").tasks:
    print(f"{task.name:10} on node {task.node}, port {task.port}")

# %% [markdown]
# ### Errors in a config
#
# If a config has errors, nothing starts. `lab` reports all errors together, each with its place.

# %%
broken = """
version: 1
name: broken
nodes:
  tf1: {gpu: 1}
jobs:
  worker: {on: [tf2]}
"""
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "broken.yaml")
    path.write_text(broken)
    try:
        lab.load(path)
    except lab.LabError as error:
        print(str(error).replace(folder, ""))

# %% [markdown]
# ### Hello
#
# Three servers of one job start. Each server requests a greeting from each of them. Then all of
# them end. (The first start takes some seconds, because every task imports TensorFlow.)

# %%
hello = lab.run("hello", cluster="clusters/hello.yaml")
print(hello.summary.state, "after", round(hello.summary.wall_s), "s")

# %% [markdown]
# Each run has a directory. `run.json` describes how the run was made: the program, the cluster, the
# versions. `tasks/` has the *records*: structured lines that each task has written. All tables and
# figures are made from these records.

# %%
print(sorted(path.name for path in hello.path.iterdir()))
records = hello.records()
records[records["message"].notna()][["task", "elapsed_s", "message"]]

# %% [markdown]
# ### A training
#
# The next run trains a model: softmax regression on MNIST. Each worker makes one pass over the
# 55,000 training images, in batches of 100. In each step it reads the parameters from the server,
# computes the gradients of a batch, and sends them to the server, which applies them at once.

# %%
run = lab.run("async", cluster="clusters/laptop.yaml", epochs=1, seed=1)
for task in run.summary.tasks:
    if task.job_name == "worker":
        print(f"{task.task}: {task.local_step} local steps, accuracy {task.accuracy:.4f}")
print("global step:", run.summary.global_step)
print("every update counted:", run.summary.updates_conserved)

# %% [markdown]
# The loss of the run:

# %%
run.figure("loss")

# %% [markdown]
# These are the last steps of both workers, in the order of time:

# %%
steps = run.steps().sort_values("time_unix")
steps[["task", "epoch", "local_step", "global_step", "staleness", "loss"]].tail(6)

# %% [markdown]
# The run has saved the trained parameters as NumPy arrays, so you can test the model without
# TensorFlow. In this confusion matrix, each row is a digit and each column a prediction. Right
# predictions are on the diagonal:

# %%
model = load_model(run.path / "model").parameters
test = load_test()


def predicted(images):
    """The most probable digit of each image."""
    return (images @ model["weights"] + model["biases"]).argmax(axis=1)


confusion = np.zeros((10, 10), int)
np.add.at(confusion, (test.labels, predicted(test.images)), 1)
print("accuracy:", np.trace(confusion) / len(test))
print(confusion)

# %% [markdown]
# Classify a digit of your own: 28 by 28 pixels, 0 for paper and 1 for ink. This is a seven.

# %%
drawing = np.zeros((28, 28))
drawing[6:9, 6:21] = 1
for row in range(9, 24):
    drawing[row, 22 - row // 2 : 25 - row // 2] = 1
print("digit:", predicted(drawing.reshape(1, 28 * 28))[0])

# %% [markdown]
# With `gpus="index"`, `lab` also makes a plan for GPUs that this host does not have. Try other
# files of `clusters/`:

# %%
for task in lab.plan(lab.load("clusters/four-gpus.yaml"), gpus="index").tasks:
    print(f"{task.name:10} on node {task.node}, GPUs {', '.join(task.gpus) or '-'}")

# %% [markdown]
# ## What you should see
#
# Every server greets every server. Every step of a worker is one update, and none is lost. Each
# worker makes its own pass over the images: two workers do twice the work of one.
#
# `lab` computes the right numbers from *your* runs. Replace each `...` by what you found, and run
# the cell:

# %%
check("tour", greetings=..., updates=..., images=...)

# %% [markdown]
# ## Questions
#
# **Question 1.** Which task gets exactly the `TF_CONFIG` above? On which node does it run? From
# which address does it read the parameters?
#
# <details><summary>Answer</summary>
#
# `worker-1`, which the plan puts on `tf3`. The parameters are on the only task of job `ps`, at
# `tf1:2222`. All other tasks get the same `cluster` and another `task`.
#
# </details>
#
# **Question 2.** Both workers of the laptop listen on port 2222. Why is this not a conflict? And
# why do the tasks of `clusters/book.yaml` have four different ports?
#
# <details><summary>Answer</summary>
#
# The workers of the laptop are on different nodes. Each node has its own address, like a machine.
# In `book.yaml` all four tasks share the node `tf1` (the book trains on one machine), so each task
# needs its own port. The config has `port: 9001`, and `lab` counts up from there: 9001 to 9004, as
# in the book.
#
# </details>
#
# **Question 3.** Which two errors are in the broken config, and how do you correct them?
#
# <details><summary>Answer</summary>
#
# A node has `gpus`, not `gpu`. And the worker runs on `tf2`, which is not a node of this config.
# `nodes: {tf1: {gpus: 1}}` and `on: [tf1]` are correct.
#
# </details>
#
# **Question 4.** How do the 550 *local* steps of a worker and the *global* step at the end follow
# from the number of images? What does `updates_conserved` show?
#
# <details><summary>Answer</summary>
#
# 55,000 images in batches of 100 are 550 batches. Each step of each of the two workers is one
# update of the shared parameters, so the global step ends at 2 · 550 = 1,100. `updates_conserved`:
# all counted updates were really made. A separate variable (a *probe*) adds one in each update,
# with the same operation as the parameters. At the end it was equal to the global step.
#
# </details>
#
# **Question 5.** Why does a worker's global step rise faster than its local step?
#
# <details><summary>Answer</summary>
#
# The global step counts the updates of all workers, the local step only a worker's own updates.
# While this worker made 100 steps, the other worker made about as many. `staleness` shows the same
# effect within a single step: the number of updates by others between this worker's read of the
# parameters and its own update. Notebook `01_async` explains it.
#
# </details>
#
# **Question 6.** You have a host with eight GPUs. Which of the files in `clusters/` fit it, and
# which task gets no GPU?
#
# <details><summary>Answer</summary>
#
# `clusters/eight-gpus.yaml`: eight workers with one GPU each, and a parameter server without a GPU.
# `clusters/two-ps.yaml`: four workers with two GPUs each, and two parameter servers, which share
# nodes with workers and have no GPU. The default `cluster.yaml` is also for such a host: three
# workers with two GPUs each, and two unused GPUs. A parameter server gets no GPU. It only stores
# parameters and adds gradients to them, and a GPU is more useful for a worker
# ([docs/how-to/gpus.md](../docs/how-to/gpus.md)).
#
# </details>
#
# ## Next
#
# - Notebook `01_async`, or [the lesson](../docs/tutorials/lessons/async.md): no worker waits.
# - The same on the command line:
#
# ```
# lab validate --cluster clusters/laptop.yaml
# lab run async --cluster clusters/laptop.yaml --epochs 1 --seed 1
# lab show last
# lab check tour
# ```
