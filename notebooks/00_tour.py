# %% [markdown]
# # A tour of the cluster
#
# One box, several machines that are none: this notebook describes a cluster, looks at what becomes
# of the description, starts programs on it, and reads what each of them reported. It takes about
# fifteen minutes and needs neither a GPU nor Docker.
#
# You will meet these words, and every other notebook uses them:
#
# | word | meaning |
# | --- | --- |
# | box | the computer that you sit at, with its GPUs |
# | node | a slice of the box that is like a machine: it has a hostname, an address, some GPUs |
# | task | one process of the training, such as `worker-1` |
# | job | what a task is for: `ps` (parameter server), `worker` and others |
# | cluster spec | who is where: for each job the list of its tasks' addresses |
# | run | one execution of a program on a cluster, and the directory that is left of it |

# %%
import json
import tempfile
from pathlib import Path

from common import at_root, figure

from lab import api
from lab.errors import LabError

at_root()

# %% [markdown]
# ## The description
#
# A cluster begins as a file. This one says: a laptop without GPUs, cut into three nodes; a
# parameter server on the first, a worker on each of the others.

# %%
print(Path("clusters/laptop.yaml").read_text())

# %% [markdown]
# `api.load` reads it and refuses what is wrong, `api.plan` decides which task runs where. Nothing
# is started by either.

# %%
cluster = api.load("clusters/laptop.yaml")
plan = api.plan(cluster, gpus="none")
for task in plan.tasks:
    print(f"{task.name:10} on node {task.node}, port {task.port}")

# %% [markdown]
# From the plan follows TensorFlow's cluster spec. Each task gets the *same* list, and is told which
# entry it is itself. TensorFlow expects that in a variable of the environment, `TF_CONFIG`:

# %%
spec = plan.cluster_spec()
tf_config = {"cluster": spec, "task": {"type": "worker", "index": 1}}
print(json.dumps(tf_config, indent=2))

# %% [markdown]
# **Question 1.** Which task gets exactly this `TF_CONFIG`, on which node does it run, and where
# does it look for the parameters?
#
# <details><summary>Answer</summary>
#
# `worker-1`, which the plan puts on `tf3`. The parameters are on the only task of job `ps`, at
# `tf1:2222`. All other tasks get the same `cluster` and another `task`.
#
# </details>
#
# **Question 2.** Both workers listen on port 2222. Why is that no clash here? And why do the tasks
# of `clusters/book.yaml`, below, have four different ports?

# %%
for task in api.plan(api.load("clusters/book.yaml"), gpus="none").tasks:
    print(f"{task.name:10} on node {task.node}, port {task.port}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The workers of the laptop are on different nodes, and a node has an address of its own, as a
# machine has. In `book.yaml` all four tasks share the node `tf1` (the book trains on one machine),
# so that each needs a port of its own. The description says `port: 9001`, and the lab counts up
# from there: 9001 to 9004, as in the book.
#
# </details>
#
# ## What is wrong is said at once
#
# A description with faults starts nothing. All faults are named together, each with its place.

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
        api.load(path)
    except LabError as error:
        print(str(error).replace(folder, ""))

# %% [markdown]
# **Question 3.** Which two faults are there, and what would you write instead?
#
# <details><summary>Answer</summary>
#
# A node has `gpus`, not `gpu`; and the worker is to run on `tf2`, which is no node of this
# description. `nodes: {tf1: {gpus: 1}}` and `on: [tf1]` would do.
#
# </details>
#
# ## Hello
#
# Now something runs. Three servers of one job are started, each asks each of them for a greeting,
# and all of them end. (The first start takes some seconds: every task imports TensorFlow.)

# %%
hello = api.run("hello", cluster="clusters/hello.yaml")
print(hello.summary.state, "after", round(hello.summary.wall_s), "s")

# %% [markdown]
# A run leaves a directory behind. `run.json` says how it was made: by which program, on which
# cluster, with which versions. In `tasks/` lie the *records*, the structured lines that each task
# has reported; they are what all tables and figures are made of.

# %%
print(sorted(path.name for path in hello.path.iterdir()))
records = hello.records()
records[records["message"].notna()][["task", "elapsed_s", "message"]]

# %% [markdown]
# ## A training
#
# The same with something to learn: softmax regression on MNIST, one pass of each worker over the
# 55,000 training images, in batches of 100. Each worker reads the parameters from the server,
# computes the gradients of a batch, and has them applied at once.

# %%
run = api.run("async", cluster="clusters/laptop.yaml", epochs=1, seed=1)
for task in run.summary.tasks:
    if task.job_name == "worker":
        print(f"{task.task}: {task.local_step} local steps, accuracy {task.accuracy:.4f}")
print("global step:", run.summary.global_step)
print("every update counted:", run.summary.updates_conserved)

# %% [markdown]
# Where all of this took place, as a picture:

# %%
figure("cluster", run)

# %% [markdown]
# **Question 4.** A worker makes 550 *local* steps. Where does this number come from, and how does
# the *global* step follow from it?
#
# <details><summary>Answer</summary>
#
# 55,000 images in batches of 100 are 550 batches. Each step of each of the two workers is one
# update of the shared parameters, so the global step ends at 2 · 550 = 1,100. `updates_conserved`
# says that this is not only what was counted but what has happened: a variable of its own (a
# *probe*) is changed by exactly one in each update, by the same way as the parameters, and ended at
# the global step.
#
# </details>
#
# **Question 5.** Here are the last steps of both workers, in the order of time. Why does a worker's
# global step rise by more than its local step does?

# %%
steps = run.steps().sort_values("time_unix")
steps[["task", "epoch", "local_step", "global_step", "staleness", "loss"]].tail(6)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The global step counts the updates of all workers, the local step a worker's own. While this one
# made 100 steps, the other one made about as many. `staleness` is the same effect within a single
# step: how many updates of others came between this worker's reading of the parameters and its own
# update. Notebook `01_async` is about that.
#
# </details>
#
# ## The same on the command line
#
# Whatever a notebook does, the terminal does too:
#
# ```
# lab validate --cluster clusters/laptop.yaml
# lab run async --cluster clusters/laptop.yaml --epochs 1 --seed 1
# lab runs
# lab show last
# ```
#
# **Question 6.** You own a box with eight GPUs. Which of the files in `clusters/` fit it, and which
# task gets no GPU? Look before you open the answer: put other files in place of this one. With
# `gpus="index"` the lab plans for a box that is not this one.

# %%
for task in api.plan(api.load("clusters/four-gpus.yaml"), gpus="index").tasks:
    print(f"{task.name:10} on node {task.node}, cards {', '.join(task.gpus) or '-'}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# `clusters/eight-gpus.yaml`: eight workers with a card each, and a parameter server without one.
# `clusters/two-ps.yaml`: four workers with two cards each, and two parameter servers, which live
# beside workers and have none. The default `cluster.yaml` is for such a box, too: three workers
# with two cards each, and two cards idle. A parameter server gets none: it stores parameters and
# adds gradients to them, and a card that it took would be missing elsewhere
# ([docs/gpus.md](../docs/gpus.md)).
#
# </details>
