# %% [markdown]
# # Async: no worker waits
#
# [中文](zh/01_async.ipynb)
#
# **Goal.** You can count the updates of a training, explain stale gradients, and say why three
# workers of one run report three accuracies.
#
# **You need** notebook `00_tour`, and 25 minutes.
#
# Three workers share one set of parameters, and never wait for each other. Each of them repeats
# three steps:
#
# 1. read the parameters from the parameter server,
# 2. compute the gradients of a batch,
# 3. send them to the server, which applies them at once.
#
# While a worker is in step 2, other workers can complete their step 3. The **staleness** of an
# update is the number of updates *by other workers* between this worker's read and this update.

# %%
import pandas as pd
from common import at_root, check, sample, steps_of

import lab

at_root()

# %% [markdown]
# ## Predict
#
# - Three workers make 550 steps each. How many updates is that? And if one of them begins late?
# - Which worker ends last?
# - One worker is slow. Whose updates are the stalest?
#
# ## Run
#
# ### First on paper
#
# Three equally fast workers take turns. Each worker reads right after its own update, as in the
# loop above.

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
# ### A real training
#
# Three workers and a parameter server (`clusters/book.yaml`). Each worker makes one pass over the
# training images.

# %%
run = lab.run("async", cluster="clusters/book.yaml", epochs=1, seed=1)
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
# ### Staleness
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
quick = lab.run("async-fast", cluster="clusters/book.yaml", epochs=3, seed=1)
print(f"mean staleness: async {made.summary.mean_staleness:.2f}", end=", ")
print(f"async-fast {quick.summary.mean_staleness:.2f}")

# %% [markdown]
# ### The loss, and three accuracies

# %%
made.figure("loss")

# %% [markdown]
# Each worker tests the parameters when *it* has finished. In the sample run:

# %%
ends = made.records().query("kind == 'eval'")[
    ["task", "time_unix", "global_step", "accuracy", "message"]
]
ends = ends.sort_values("time_unix")
ends.assign(time_unix=ends["time_unix"] - ends["time_unix"].min())

# %% [markdown]
# ### A late worker
#
# In this run of two epochs, `worker-2` waits until the others have made 600 updates. The dotted
# line with the mark ① is the moment at which it joins.

# %%
late = lab.run(
    "async", cluster="clusters/book.yaml", epochs=2, seed=1, start="worker-2: after 600 steps"
)
late.figure("progress")

# %%
late_steps = steps_of(late)
late_steps.groupby("task", observed=True)[["local_step", "global_step"]].agg(["min", "max"])

# %% [markdown]
# ### A slow worker
#
# `worker-1` runs for only 30% of the time:

# %%
slow = lab.run("async", cluster="clusters/book.yaml", epochs=1, seed=1, fault="slow:0.3 worker-1")
pd.DataFrame(
    [(task.task, task.mean_staleness) for task in slow.summary.tasks if task.job_name == "worker"],
    columns=["task", "mean staleness"],
).round(2)

# %% [markdown]
# ## What you should see
#
# - Each local step is one update, and none is lost, also if one begins late. Three workers do three
#   times the work of one.
# - The mean staleness of equal workers is below *n* − 1. A slow worker's updates are staler, those
#   of the others fresher.
# - The last worker tests the *newest* parameters.
#
# Replace each `...` by what you found in your runs (for a task write `"worker-0"`):

# %%
check("async", updates=..., last=..., late_updates=..., stalest=...)

# %% [markdown]
# ## Questions
#
# **Question 1.** On paper, the staleness of the first three updates is lower than that of the
# others. Why? And what is it with *n* equally fast workers?
#
# <details><summary>Answer</summary>
#
# At the beginning all three workers have read the same, new parameters. The first update has missed
# no other update, the second has missed one, the third has missed two. After that, each worker
# finds that both other workers have made an update since its own read: 2. With *n* workers it is
# *n* − 1, because here a whole step lies between read and update.
#
# </details>
#
# **Question 2.** Two workers can send to the server at the same moment, and both change the same
# parameters. Suppose that one of two such updates were lost sometimes. Which of these would *not*
# show it: the local steps, the global step, `updates_conserved`?
#
# <details><summary>Answer</summary>
#
# The first two. Local steps count the steps of each worker, and the global step counts the updates
# on the server. If an addition is lost *in the parameters*, neither of them changes. The third
# would show it. A probe variable adds exactly one in each update, with the same operation as the
# parameters. At the end it is compared with the global step. (In the program each update holds the
# variable's lock: `use_locking=True` in `scripts/mnist_async.py`.)
#
# </details>
#
# **Question 3.** On paper every update had a staleness of 2. In the real training the mean is
# lower. Which assumption was wrong? And can the mean be higher than 2?
#
# <details><summary>Answer</summary>
#
# The wrong assumption is that a worker's whole step lies between its read and its own update. In a
# real step a part of the time passes before the read, and another part after the count. Updates by
# others in these parts make no gradient stale. So the mean is about (*n* − 1) times the share of a
# step between read and count. (Workers of `async-fast` have the new parameters as soon as their
# update is made, so this share, and their staleness, are larger.) The mean of one worker can be
# higher than *n* − 1, if it is slower than the others. The mean over all steps of *all* workers
# cannot: each update makes at most one step of each other worker staler ([the
# lesson](../docs/tutorials/lessons/staleness.md)).
#
# </details>
#
# **Question 4.** The three workers use gradients that are one or two updates old. But the loss
# falls normally. When do you expect problems?
#
# <details><summary>Answer</summary>
#
# Gradients that were computed at about the same point add up: *n* workers then move as far as one
# worker with about *n* times the learning rate. At a rate of 0.01 this is still a small step. With
# a high rate or many workers it goes past the minimum. Notebook `03_stragglers` shows it: at a rate
# of 1 the loss rises with the number of workers, at 0.1 it does not.
#
# </details>
#
# **Question 5.** The book prints 0.8865, 0.8866 and 0.8894 for its three workers. All come from one
# training with one set of parameters. How is this possible? And which of the three would you
# publish?
#
# <details><summary>Answer</summary>
#
# They tested the same parameters at different times. A worker that finishes first tests parameters
# that the other workers still change; compare `global_step` in the table. The last worker tests the
# newest parameters, after (nearly) all updates. In the book it is the worker with 0.8894, which had
# started late. Publish the accuracy of the parameters after the end of all workers, even if an
# earlier one was higher. For this, the chief of `lab` tests once more at the end. This is the row
# with `final parameters`.
#
# </details>
#
# **Question 6.** In the run with the late worker, how many updates do all workers make together,
# and which worker ends last? Look at the slope of a curve: what does it show?
#
# <details><summary>Answer</summary>
#
# 3,300: every worker makes its own 1,100 steps, no matter when it begins. `worker-2` ends last, and
# makes its last steps alone. The slope is the number of updates of *all* workers per second. Does
# it change when a worker joins or leaves? This depends on the resource that limits the speed. Here
# three workers share the cores of this host. On two cores, two workers are together nearly as fast
# as three. (The book's own table looks like the result of such a run. Notebook `06_reproduce` fits
# the start of its third worker to the printed numbers.)
#
# </details>
#
# ## Next
#
# - Notebook `02_sync`: all workers wait.
# - [The lesson](../docs/tutorials/lessons/async.md), with more to try; `scripts/mnist_async.py`,
#   which you
#   can read from top to bottom.
