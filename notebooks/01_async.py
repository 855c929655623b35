# %% [markdown]
# # Async: nobody waits for anybody
#
# Three workers share one set of parameters and never wait for each other. What does that do to a
# training? You will count updates, see gradients grow stale, and find out why three workers of one
# run report three accuracies. Fifteen minutes.
#
# The loop of each worker is short:
#
# 1. read the parameters from the parameter server,
# 2. compute the gradients of a batch,
# 3. send them to the server, which applies them at once.
#
# While it is at 2 the others may have done their 3.

# %%
import pandas as pd
from common import at_root, figure, sample, steps_of

from lab import api

at_root()

# %% [markdown]
# ## On paper first
#
# Three workers that are equally fast take turns. Let each read right after its own update, as in
# the loop above, and note for every update how many updates *of others* came between this worker's
# reading and it. That number is the update's **staleness**.

# %%
workers, updates = 3, 12
read_at = [0] * workers  # the number of updates that were in the parameters when each one read them
rows = []
for update in range(updates):
    worker = update % workers
    rows.append({"update": update + 1, "worker": worker, "staleness": update - read_at[worker]})
    read_at[worker] = update + 1  # it reads again, now with its own update in them
pd.DataFrame(rows).set_index("update").T

# %% [markdown]
# **Question 1.** The first three updates are less stale than the rest. Why? And what is the
# staleness among *n* equally fast workers?
#
# <details><summary>Answer</summary>
#
# At the beginning all three have read the same, fresh parameters: the first update is up to date,
# the second has missed one, the third has missed two. From then on each worker finds that both
# others have updated since it read: 2. Among *n* workers it is *n* − 1.
#
# </details>
#
# ## A real one
#
# One pass of each worker over the training images, three workers and a parameter server
# (`clusters/book.yaml`).

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
# **Question 2.** Two workers can reach the server in the same moment, and each changes the same
# numbers there. If one of two updates were lost now and then, which of the three lines above would
# *not* show it?
#
# <details><summary>Answer</summary>
#
# The first two. Local steps count what the workers did, the global step what was counted on the
# server; an addition that was lost *in the parameters* changes neither. The third line would: a
# probe variable gets exactly one in each update, by the same operation as the parameters, and is
# compared with the global step at the end. (The program has each update made under the variable's
# lock: `use_locking=True` in `scripts/mnist_async.py`.)
#
# </details>
#
# ## How stale?
#
# From here on the pictures come from a sample run of three epochs that was made with
# `record_every=10`, so that there is more to see. You can draw your own: put `made = run` in its
# place.

# %%
made = sample("async")
figure("staleness", made)

# %%
steps = steps_of(made)
steps.groupby("task", observed=True)["staleness"].agg(["mean", "max", "count"]).round(2)

# %% [markdown]
# A panel is a worker, and the dashed line in it is the mean.
#
# A quicker program for the same training, `async-fast`: its workers are handed the new parameters
# with the answer to their update.

# %%
quick = api.run("async-fast", cluster="clusters/book.yaml", epochs=3, seed=1)
print(f"mean staleness: async {steps['staleness'].mean():.2f}", end=", ")
print(f"async-fast {quick.steps()['staleness'].mean():.2f}")

# %% [markdown]
# **Question 3.** On paper every update had a staleness of 2. Here the mean is lower. Which
# assumption of the paper was wrong? And could the mean be higher than 2?
#
# <details><summary>Answer</summary>
#
# That a worker reads right after its own update. A real one first draws the next batch and hands
# its 314 kB to TensorFlow, and only then reads; what the others do until then is not missed.
# Staleness counts from reading to applying alone. (Workers of `async-fast` hold the new parameters
# as soon as they have updated: theirs is nearer to 2.) And no step takes exactly as long as
# another, so that now and then somebody is overtaken twice: 3 or more. The mean over all cannot be
# higher than *n* − 1: while one worker makes one step, each update of another is late for that one
# step at most ([the lesson](../docs/lessons/staleness.md)).
#
# </details>
#
# ## What it does to the loss

# %%
figure("loss", made)

# %% [markdown]
# **Question 4.** Three workers with gradients that are one or two updates old, and yet the curves
# fall as if nothing were the matter. When would you expect trouble?
#
# <details><summary>Answer</summary>
#
# An old gradient is wrong by as much as the parameters have moved since. At a rate of 0.01 two
# updates move them little. With a wide step or many workers they move far, and the old gradient
# pushes them past the minimum. Notebook `03_stragglers` shows it: at a rate of 1 the loss rises
# with the number of workers, at 0.1 it does not.
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
# **Question 5.** The book prints 0.8865, 0.8866 and 0.8894 for its three workers, all from one
# training with one set of parameters. How can that be? And which of the three would you publish?
#
# <details><summary>Answer</summary>
#
# They tested the same parameters at different times. Who finishes first tests what the others are
# still improving; compare `global_step` in the table. The last of them tests (nearly) the final
# parameters. In the book it is the worker with 0.8894, which had started late. To publish is what
# the parameters are worth when all have ended: the lab has the chief test once more then, the line
# with `final parameters`.
#
# </details>
#
# ## Late to the party
#
# A worker that starts late finds a training that has gone on without it. Here are two epochs, and
# `worker-2` is held back until the others have made 600 updates:

# %%
late = api.run(
    "async", cluster="clusters/book.yaml", epochs=2, seed=1, start="worker-2: after 600 steps"
)
figure("progress", late)

# %% [markdown]
# The dotted line with the mark ① is the moment at which `worker-2` joins.

# %%
late_steps = steps_of(late)
late_steps.groupby("task", observed=True)[["local_step", "global_step"]].agg(["min", "max"])

# %% [markdown]
# **Question 6.** How many updates are made in all, and which worker ends last? Read the slope of a
# curve: what does it say?
#
# <details><summary>Answer</summary>
#
# 3,300: every worker has its own 1,100 steps to make, whenever it begins. `worker-2` ends last, and
# makes its last steps alone. The slope is the updates of *all* workers in a second. Whether it
# changes when one joins or leaves depends on what was scarce: three workers on two cores share
# them, so that two are nearly as fast together as three. (The book's own table looks as if it was
# made like this. Notebook `06_reproduce` fits its third worker's start to the printed numbers.)
#
# </details>
#
# ## Read on
#
# - [The lesson](../docs/lessons/async.md), with more to try; `scripts/mnist_async.py`, to be read
#   from top to bottom.
# - `lab run async --fault "slow:0.3 worker-1"`: who is stale now? Notebook `03_stragglers` has the
#   answer.
