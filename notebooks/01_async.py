# %% [markdown]
# # Async: no worker waits
#
# Three workers share one set of parameters, and never wait for each other. What is the effect on a
# training? You will count updates, see stale gradients, and find out why three workers of one run
# report three accuracies. Fifteen minutes.
#
# The loop of each worker is short:
#
# 1. read the parameters from the parameter server,
# 2. compute the gradients of a batch,
# 3. send them to the server, which applies them at once.
#
# While a worker is in step 2, other workers can complete their step 3.

# %%
import pandas as pd
from common import at_root, sample, steps_of

from lab import api

at_root()

# %% [markdown]
# ## First on paper
#
# Three equally fast workers take turns. Each worker reads right after its own update, as in the
# loop above. For every update, count the updates *by other workers* between this worker's read and
# this update. That number is the **staleness** of the update.

# %%
workers, updates = 3, 12
read_at = [0] * workers  # the number of updates in the parameters that each worker has read
rows = []
for update in range(updates):
    worker = update % workers
    rows.append({"update": update + 1, "worker": worker, "staleness": update - read_at[worker]})
    read_at[worker] = update + 1  # it reads again, after its own update
pd.DataFrame(rows).set_index("update").T

# %% [markdown]
# **Question 1.** The staleness of the first three updates is lower than that of the others. Why?
# And what is the staleness with *n* equally fast workers?
#
# <details><summary>Answer</summary>
#
# At the beginning all three workers have read the same, new parameters. The first update has missed
# no other update, the second has missed one, the third has missed two. After that, each worker
# finds that both other workers have made an update since its own read: 2. With *n* workers it is
# *n* − 1.
#
# </details>
#
# ## A real training
#
# Three workers and a parameter server (`clusters/book.yaml`). Each worker makes one pass over the
# training images.

# %%
run = api.run("async", cluster="clusters/book.yaml", epochs=1, seed=1)
workers_only = [task for task in run.summary.tasks if task.job_name == "worker"]
pd.DataFrame(
    [(task.task, task.local_step, task.global_step, task.accuracy) for task in workers_only],
    columns=["task", "local steps", "last global step", "accuracy"],
)

# %%
print("sum of local steps:", sum(task.local_step for task in workers_only))
print("global step:", run.summary.global_step)
print("every update counted:", run.summary.updates_conserved)

# %% [markdown]
# **Question 2.** Two workers can send to the server at the same moment, and both change the same
# parameters. Suppose that one of two such updates were lost sometimes. Which of the three outputs
# above would *not* show it?
#
# <details><summary>Answer</summary>
#
# The first two. Local steps count the steps of each worker, and the global step counts the updates
# on the server. If an addition is lost *in the parameters*, neither of them changes. The third
# output would show it. A probe variable adds exactly one in each update, with the same operation as
# the parameters. At the end it is compared with the global step. (In the program each update holds
# the variable's lock: `use_locking=True` in `scripts/mnist_async.py`.)
#
# </details>
#
# ## Staleness
#
# The next figures come from a sample run of three epochs. It was made with `record_every=10`, so
# that it has more records. To draw your own run, use `made = run` instead.

# %%
made = sample("async")
made.figure("staleness")

# %%
pd.DataFrame(
    [
        (task.task, task.staleness_steps, task.mean_staleness)
        for task in made.summary.tasks
        if task.job_name == "worker"
    ],
    columns=["task", "steps", "mean staleness"],
).round(2)

# %% [markdown]
# Each panel is a worker. The bars show the recorded steps, here every tenth one. The dashed line is
# the mean over *all* steps: each worker adds up the staleness of its steps, recorded or not. A
# worker's first step is not in the bars, because it includes the start of its graph.
#
# `async-fast` is a faster program for the same training. Its workers receive the new parameters
# with the answer to their update.

# %%
quick = api.run("async-fast", cluster="clusters/book.yaml", epochs=3, seed=1)
print(f"mean staleness: async {made.summary.mean_staleness:.2f}", end=", ")
print(f"async-fast {quick.summary.mean_staleness:.2f}")

# %% [markdown]
# **Question 3.** On paper every update had a staleness of 2. Here the mean is lower. Which
# assumption was wrong? And can the mean be higher than 2?
#
# <details><summary>Answer</summary>
#
# The wrong assumption is that a worker's whole step lies between its read and its own update. In a
# real step a part of the time passes before the read, and another part after the count. Updates by
# others in these parts make no gradient stale. So the mean is about (*n* − 1) times the share of a
# step between read and count. (Workers of `async-fast` have the new parameters as soon as their
# update is made, so this share, and their staleness, are larger.) Also, no two steps take exactly
# the same time. So sometimes another worker makes two updates during one step, and the staleness is
# 3 or more. The mean of one worker can be higher than *n* − 1, if it is slower than the others. The
# mean over all steps of *all* workers cannot: each update makes at most one step of each other
# worker staler ([the lesson](../docs/lessons/staleness.md)).
#
# </details>
#
# ## The effect on the loss

# %%
made.figure("loss")

# %% [markdown]
# **Question 4.** The three workers use gradients that are one or two updates old. But the loss
# falls normally. When do you expect problems?
#
# <details><summary>Answer</summary>
#
# The error of an old gradient depends on the distance that the parameters have moved since its
# read. At a rate of 0.01, two updates move them only a little. With a high rate or many workers
# they move far, and the old gradient pushes them past the minimum. Notebook `03_stragglers` shows
# it: at a rate of 1 the loss rises with the number of workers, at 0.1 it does not.
#
# </details>
#
# ## Three accuracies
#
# Each worker tests the parameters when *it* has finished. In the sample run:

# %%
ends = made.records().query("kind == 'eval'")[
    ["task", "time_unix", "global_step", "accuracy", "message"]
]
ends = ends.sort_values("time_unix")
ends.assign(time_unix=ends["time_unix"] - ends["time_unix"].min())

# %% [markdown]
# **Question 5.** The book prints 0.8865, 0.8866 and 0.8894 for its three workers. All come from one
# training with one set of parameters. How is this possible? And which of the three would you
# publish?
#
# <details><summary>Answer</summary>
#
# They tested the same parameters at different times. A worker that finishes first tests parameters
# that the other workers still improve; compare `global_step` in the table. The last worker tests
# (nearly) the final parameters. In the book it is the worker with 0.8894, which had started late.
# Publish the accuracy of the parameters after the end of all workers. For this, the chief of the
# lab tests once more at the end. This is the row with `final parameters`.
#
# </details>
#
# ## A late worker
#
# A worker that starts late joins a training that has already made progress. In this run of two
# epochs, `worker-2` waits until the others have made 600 updates:

# %%
late = api.run(
    "async", cluster="clusters/book.yaml", epochs=2, seed=1, start="worker-2: after 600 steps"
)
late.figure("progress")

# %% [markdown]
# The dotted line with the mark ① is the moment at which `worker-2` joins.

# %%
late_steps = steps_of(late)
late_steps.groupby("task", observed=True)[["local_step", "global_step"]].agg(["min", "max"])

# %% [markdown]
# **Question 6.** How many updates do all workers make together, and which worker ends last? Look at
# the slope of a curve: what does it show?
#
# <details><summary>Answer</summary>
#
# 3,300: every worker makes its own 1,100 steps, no matter when it begins. `worker-2` ends last, and
# makes its last steps alone. The slope is the number of updates of *all* workers per second. Does
# it change when a worker joins or leaves? This depends on the resource that limits the speed. Here
# three workers share two cores, so two workers are together nearly as fast as three. (The book's
# own table looks like the result of such a run. Notebook `06_reproduce` fits the start of its third
# worker to the printed numbers.)
#
# </details>
#
# ## Read on
#
# - [The lesson](../docs/lessons/async.md), with more to try; `scripts/mnist_async.py`, which you
#   can read from top to bottom.
# - `lab run async --fault "slow:0.3 worker-1"`: which workers have stale gradients now? Notebook
#   `03_stragglers` has the answer.
