# %% [markdown]
# # Stragglers, staleness and backup workers
#
# [中文](zh/03_stragglers.ipynb)
#
# **Goal.** You know what one slow worker does to asynchronous and to synchronous training, when a
# backup worker helps, and when stale gradients make a training fail.
#
# **You need** notebook `02_sync`, and 30 minutes.
#
# In a cluster some worker is always slow, because of a hot GPU, another program on the same
# machine, or a bad cable. Here you slow down one of three workers on purpose.

# %%
import math

import matplotlib.pyplot as plt
import pandas as pd
from common import at_root, check, curve, sample, steps_of

import lab

at_root()

# %% [markdown]
# ## Predict
#
# - One of three workers runs for 0.3 of the time. What share of the updates per second is left,
#   with async, with sync, and with sync and a backup worker? Write down three numbers.
# - How many gradients are computed for each update, without and with a backup worker?
# - Three workers hold their gradients for some time before they send them. How stale is a gradient
#   on average?
#
# ## Run
#
# ### One of three workers is slow
#
# Three sample runs of three epochs each. In all of them `worker-2` is slowed down after 600
# updates: `--fault "slow:0.3,5m worker-2 after 600 steps"`. In the third run an update needs only
# two of three gradients (`--replicas_to_aggregate 2`). We do not slow down `worker-0`, because it
# is the chief. The chief makes every synchronous update, so a slow chief slows down all workers.
#
# The dotted line is the fault. Where lines overlap, the wider line is visible beside the narrower
# one.

# %%
names = ("async-straggler", "sync-straggler", "sync-backup")
made = {name: sample(name) for name in names}


def fault_time(run):
    """The start of the fault in seconds since the epoch, from the task's own record."""
    records = run.records()
    return records[records["message"].str.startswith("fault: ", na=False)]["time_unix"].min()


figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), sharex=True, sharey=True)
for axes, (name, run) in zip(panels, made.items(), strict=True):
    steps = steps_of(run)
    for number, (task, own) in enumerate(steps.groupby("task", observed=True)):
        width = (8, 4.5, 1.5)[number]  # so that overlapping lines stay visible
        line = {"linewidth": width, "solid_capstyle": "butt", "label": str(task)}
        axes.plot(own["seconds"], own["local_step"], **line)
    axes.axvline(fault_time(run) - steps["time_unix"].min(), color="grey", linestyle=":")
    axes.set(title=name, xlabel="seconds")
panels[0].set(ylabel="the worker's own steps")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
figure.set_layout_engine("constrained")
plt.show()

# %% [markdown]
# The speed of all workers together, before and after the fault, while all three train:


# %%
def pace(steps):
    """Updates per second."""
    spans = steps[["global_step", "time_unix"]].agg(["min", "max"]).diff().loc["max"]
    return float(spans["global_step"] / spans["time_unix"])


rows = []
for name, run in made.items():
    steps, began = steps_of(run), fault_time(run)
    first_end = steps.groupby("task", observed=True)["time_unix"].max().min()
    before = pace(steps[steps["time_unix"] < began])
    after = pace(steps[steps["time_unix"].between(began, first_end)])
    rows.append((name, before, after, after / before))
pd.DataFrame(rows, columns=["run", "updates/s before", "after", "ratio"]).round(2)

# %% [markdown]
# The local steps of each worker:

# %%
rows = {
    name: run.steps().groupby("task", observed=True)["local_step"].max()
    for name, run in made.items()
}
local = pd.DataFrame(rows)
local.loc["all"] = local.sum()
local.loc["updates"] = [run.summary.global_step for run in made.values()]
local

# %% [markdown]
# The staleness in the asynchronous run, before and after the fault:

# %%
steps = steps_of(made["async-straggler"])
first_end = steps.groupby("task", observed=True)["time_unix"].max().min()
# While all three train, without first steps, which include the start of the graph.
together = steps[(steps["time_unix"] <= first_end) & (steps["local_step"] > 1)]
slowed = together["time_unix"] > fault_time(made["async-straggler"])
both = together.assign(phase=slowed.map({False: "before", True: "slowed"}))
phases = both.groupby(["task", "phase"], observed=True)
# Each record has the sum over all steps so far, so two records give the mean of all between them.
totals = phases[["staleness_sum", "local_step"]]
grown = totals.max() - totals.min()
pd.DataFrame(
    {
        "mean over all steps": grown["staleness_sum"] / grown["local_step"],
        "highest recorded": phases["staleness"].max(),
    }
).astype(float).round(2)

# %% [markdown]
# ### Your own runs
#
# Three equal workers, a slow one, and a slow one with a backup worker:

# %%
own = {
    "even": lab.run("sync", cluster="clusters/book.yaml", epochs=1, seed=1),
    "slow": lab.run(
        "sync", cluster="clusters/book.yaml", epochs=1, seed=1, fault="slow:0.3 worker-2"
    ),
    "backup": lab.run(
        "sync",
        cluster="clusters/book.yaml",
        epochs=1,
        seed=1,
        fault="slow:0.3 worker-2",
        replicas_to_aggregate=2,
    ),
}
for name, run in own.items():
    local_steps = sum(task.local_step for task in run.summary.tasks if task.local_step)
    print(f"{name}: {run.summary.steps_per_s:.1f} updates a second", end=", ")
    print(f"{local_steps} local steps for {run.summary.global_step} updates")

# %% [markdown]
# Now `worker-1` of an asynchronous training stops four times, for half a second each.
# [Faults](../docs/how-to/faults.md) lists what else you can do to a task.

# %%
mine = lab.run(
    "async",
    cluster="clusters/book.yaml",
    epochs=2,
    seed=1,
    record_every=1,
    fault=[
        "pause:0.5s worker-1 after 300 steps",
        "pause:0.5s worker-1 after 900 steps",
        "pause:0.5s worker-1 after 1500 steps",
        "pause:0.5s worker-1 after 2100 steps",
    ],
)
steps = steps_of(mine)
figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), sharex=True, sharey=True)
for number, (task, own) in enumerate(steps.groupby("task", observed=True)):
    stale = own["staleness"].astype(float)
    panels[number].plot(own["seconds"], stale, ".", color=f"C{number}")
    panels[number].set(title=str(task), xlabel="seconds", yscale="symlog", ylim=(-0.3, 3000))
panels[0].set(ylabel="staleness (0, then logarithmic)")
plt.tight_layout()
plt.show()
events = mine.records().query("kind == 'event'")
events[events["message"].str.contains("fault", na=False)][["task", "elapsed_s", "message"]]

# %%
steps.sort_values("staleness").tail(5)[["task", "seconds", "local_step", "staleness", "loss"]]

# %% [markdown]
# ### High staleness
#
# In the experiment `staleness` each worker holds its gradients for some time before it sends them.
# The longer it holds them, compared with the rest of its step, the nearer is the mean staleness of
# *n* workers to *n* − 1. It is never above. We measured 0.75, 2.5 and 5.8 for 2, 4 and 8 workers
# ([evidence](../docs/evidence/staleness.md)). On a busy host the rest of a step takes longer, and
# staleness is lower. Here are three workers:

# %%
held = lab.run("staleness", cluster="clusters/book.yaml", seed=1)
print(f"mean staleness: {held.summary.mean_staleness:.2f}")

# %% [markdown]
# An example without a cluster shows what staleness does. Minimize x²/2; its gradient is x. With
# gradients that are *d* updates old, a step is
#
# $$x_{t+1} = x_t - r\, x_{t-d}$$
#
# For which rates *r* does x still converge? The next cell tries them:


# %%
def converges(rate, delay, steps=3000):
    """Whether gradient descent on x²/2 with old gradients converges."""
    x = [1.0] * (delay + 1)
    for _ in range(steps):
        x.append(x[-1] - rate * x[-1 - delay])
        if abs(x[-1]) > 1e6:
            return False
    return abs(x[-1]) <= 1


rows = []
for delay in range(8):
    low, high = 0.0, 3.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if converges(middle, delay) else (low, middle)
    rows.append((delay, low, 2 * math.sin(math.pi / (2 * (2 * delay + 1)))))
limits = pd.DataFrame(rows, columns=["delay", "largest rate, tried", "2 sin(π / (4d + 2))"])
limits.round(3)

# %% [markdown]
# The same with a cluster: the loss of one worker and of eight workers, both with 300 updates,
# batches of 100 images and a rate of 1.

# %%
figure, axes = plt.subplots()
for number, name in enumerate(("staleness-1", "staleness-8")):
    run = sample(name)
    steps = steps_of(run)
    workers = steps["task"].nunique()
    curve(axes, steps["global_step"], steps["loss"], f"workers: {workers}", number)
    mean, most = run.summary.mean_staleness, steps["staleness"].max()
    print(f"workers: {workers}, staleness: {mean:.1f} on average, {most} at most")
axes.set(xlabel="update", ylabel="loss of one batch", yscale="log")
axes.legend()
plt.show()

# %% [markdown]
# One run of each may be chance. The next figure has 48 runs (`docs/evidence/staleness.csv`): two
# rates, two batch sizes, 1 to 8 workers, three seeds each.

# %%
every = pd.read_csv("docs/evidence/staleness.csv")
figure, panels = plt.subplots(1, 2, figsize=(12, 3.6), sharey=True)
for axes, (rate, of_rate) in zip(panels, every.groupby("learning_rate"), strict=True):
    for number, (size, of_size) in enumerate(of_rate.groupby("batch_size")):
        axes.plot(of_size["workers"], of_size["test loss"], ".", alpha=0.5, color=f"C{number}")
        means = of_size.groupby("workers")["test loss"].mean()
        axes.plot(means.index, means, "os"[number] + "-", color=f"C{number}", label=f"batch {size}")
    axes.set(title=f"rate {rate:g}", xlabel="workers", ylabel="test loss after 300 updates")
    axes.set_xscale("log", base=2)
panels[0].legend()
plt.tight_layout()
plt.show()
every.pivot_table(
    index=["learning_rate", "batch_size"], columns="workers", values="test loss"
).round(2)

# %% [markdown]
# ## What you should see
#
# - With sync all have the speed of the slow worker. With async and with a backup worker, only the
#   steps of the slow worker are missing.
# - Backup workers help against *changing* stragglers. A worker that is always slow is always the
#   one that is dropped: the model sees few of its images.
# - The staleness of equal workers is below *n* − 1. Stale gradients harm at a high learning rate,
#   and not at a low one.
#
# Replace each `...` by what you found in your own runs:

# %%
check("stragglers", gradients=..., share=..., faster=..., computed=..., mean=...)

# %% [markdown]
# ## Questions
#
# **Question 1.** Compare the three ratios with your prediction. Why does the asynchronous training
# lose so little here?
#
# <details><summary>Answer</summary>
#
# With async only the slow worker's own steps are missing, 0.7 of a third. If each worker had its
# own machine, about three quarters of the speed would remain. Here all workers share two cores, and
# the other workers use the time that the slow one does not use. Their lines become steeper, and the
# total is almost the same. With sync each round waits for the slow worker. The speed falls to that
# of the slowest worker, and free cores do not help. With a backup worker two gradients of a round
# are enough, and the loss of speed is small. (The speed before the fault is from the first seconds,
# in which a training warms up. So its second digit is not reliable.)
#
# </details>
#
# **Question 2.** In the third sample run an update needs two gradients. How many were computed for
# it, and by which workers?
#
# <details><summary>Answer</summary>
#
# About three, as without a backup worker: about 4,950 gradients for 1,650 updates. Each update puts
# three tokens into the one queue, and any worker can take them. The fast workers take those that
# the slow worker leaves. So of three gradients about one is dropped: the slow worker's, or another
# one that arrived last. (A third gradient that arrives before the update is made still enters it.)
# A training with backup workers hardly uses the slow worker's work.
#
# </details>
#
# **Question 3.** In the asynchronous run: which gradients are stale after the fault, those of the
# slow worker or those of the others?
#
# <details><summary>Answer</summary>
#
# Those of the slow worker. Its mean staleness is higher, and its maximum even more. It stops for
# 0.07 of each 0.1 seconds. A step that includes such a stop misses all updates that the others make
# in this time. A step without a stop has the usual staleness. The others see fewer updates of the
# slow worker than before, so their own staleness is lower.
#
# </details>
#
# **Question 4.** There are four pauses of `worker-1`. How many steps include a pause, and why not
# all four? How high is the staleness of these steps? Does the training get worse?
#
# <details><summary>Answer</summary>
#
# Each step of `worker-1` with a staleness far above all others includes a pause. The worker had
# read the parameters, stopped for half a second, and then sent a gradient for very old parameters.
# A pause between two steps makes nothing stale, because the worker reads new parameters after it. A
# step spends less than half of its time between the read and the update. So only some of the four
# pauses are inside this part; run the cell again, and their number can differ. At a rate of 0.01 a
# few such updates among 3,300 have no visible effect.
#
# </details>
#
# **Question 5.** In the example x²/2, by what factor must the rate decrease from a delay of 0 to a
# delay of 7, as with eight workers? And what does the last column show for many workers?
#
# <details><summary>Answer</summary>
#
# From 2 to 0.21, to a tenth. For large *d* the sine is almost its argument, and the limit is almost
# π / (2d). So it decreases in proportion to the staleness: gradients from about the same point add
# up, as if the rate were that much higher. (MNIST is not x²/2, but there too the limit decreases
# with the delay. A loss has steeper and flatter directions, and the steepest one sets the limit.)
#
# </details>
#
# **Question 6.** Two measures are often recommended against stale gradients: a smaller rate, and a
# smaller batch. Which of them helps here, and what does it cost?
#
# <details><summary>Answer</summary>
#
# The smaller rate: at 0.1, eight workers reach the same loss as one. But the training is slower.
# With a single worker, which has no stale gradients, the rate of 1 is far ahead after the same
# number of updates. The smaller batch does not help here. Its loss also rises with the number of
# workers, and it is higher everywhere, because its gradients have more noise. [The
# evidence](../docs/evidence/staleness.md) has the intervals and the test of the trend.
#
# </details>
#
# ## Next
#
# - Notebook `04_how_many`: how many servers and workers?
# - [Staleness](../docs/tutorials/lessons/staleness.md),
#   [choosing](../docs/tutorials/lessons/choosing.md), and [what
#   runs do when a task fails](../docs/reference/endings.md).
# - `lab sweep staleness --over "workers=1,2,4,8; learning_rate=0.1,1" --cluster
#   clusters/laptop.yaml` makes such a table again.
