# %% [markdown]
# # Stragglers, staleness and backup workers
#
# In a cluster somebody is always slow: a card that is too hot, a neighbour on the same machine, a
# bad cable. You will slow one of three workers on purpose and see what that is to asynchronous and
# to synchronous training; then you will make gradients so stale that a training breaks, and find
# out which cure works. Twenty minutes.

# %%
import math

import matplotlib.pyplot as plt
import pandas as pd
from common import at_root, curve, sample, steps_of

from lab import api

at_root()

# %% [markdown]
# ## One of three is slow
#
# Three sample runs of three epochs each. In all of them `worker-2` is slowed after 600 updates and
# runs for only 0.3 of the time from then on: `--fault "slow:0.3,5m worker-2 after 600 steps"`. In
# the third one an update needs only two of three gradients (`--replicas_to_aggregate 2`). The slow
# one is not `worker-0` with good reason: that is the chief, who makes every synchronous update, so
# that a slow chief is slow for all.
#
# **Question 1.** Before you run the next cells: how will the number of updates a second change,
# with async, with sync, with sync and a backup worker? Write down three factors.

# %%
names = ("async-straggler", "sync-straggler", "sync-backup")
made = {name: sample(name) for name in names}


def fault_time(run):
    """When the fault began, in seconds since the epoch, as the task's own record tells."""
    records = run.records()
    return records[records["message"].str.startswith("fault: ", na=False)]["time_unix"].min()


figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), sharex=True, sharey=True)
for axes, (name, run) in zip(panels, made.items(), strict=True):
    steps = steps_of(run)
    for number, (task, own) in enumerate(steps.groupby("task", observed=True)):
        width = (8, 4.5, 1.5)[number]  # so that those below show beside those above
        line = {"linewidth": width, "solid_capstyle": "butt", "label": str(task)}
        axes.plot(own["seconds"], own["local_step"], **line)
    axes.axvline(fault_time(run) - steps["time_unix"].min(), color="grey", linestyle=":")
    axes.set(title=name, xlabel="seconds")
panels[0].set(ylabel="the worker's own steps")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
figure.set_layout_engine("constrained")
plt.show()

# %% [markdown]
# The dotted line is the fault. Where lines lie on one another the broader one shows beside the
# narrower. Now the pace of all, before the fault and after it, as long as all three train:


# %%
def pace(steps):
    """Updates a second."""
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
# <details><summary>Answer</summary>
#
# With async only the slow worker's own steps are missing, 0.7 of a third: if each had a machine of
# its own, about three quarters of the pace would be left. Here all share two cores, and the others
# take what the slow one leaves: their lines get steeper, and in all hardly anything is missing.
# With sync each round waits for the slow one, and the pace falls to that of the slowest worker,
# 0.3; cores that are free help nobody. With a backup worker the first two of a round are enough,
# and little is lost. (The pace before the fault is that of the first seconds, in which a training
# warms up: do not take the second digit seriously.)
#
# </details>
#
# **Question 2.** Count the local steps of all workers in the third run. Each update used two
# gradients; how many were computed for it, and by whom?

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
# <details><summary>Answer</summary>
#
# Three, as without a backup worker: about 4,950 gradients for 1,650 updates. After each update
# three tokens are given out, whoever takes them; the quick ones take those that the slow one
# leaves. So of three gradients one is always dropped, the slow worker's or another one that came
# last. Backup workers do not use the slow worker's work, they do without it: three machines for a
# batch of two.
#
# </details>
#
# **Question 3.** In the asynchronous run: whose gradients are stale now, the slow worker's or the
# others'?

# %%
steps = steps_of(made["async-straggler"])
first_end = steps.groupby("task", observed=True)["time_unix"].max().min()
together = steps[steps["time_unix"] <= first_end]  # as long as all three train
slowed = together["time_unix"] > fault_time(made["async-straggler"])
both = together.assign(phase=slowed.map({False: "before", True: "slowed"}))
both.groupby(["task", "phase"], observed=True)["staleness"].agg(["mean", "max", "count"]).round(2)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The slow one's, on the mean and still more at the most: it stands still for 0.07 of each 0.1
# seconds, and a step that is caught by this misses all that the others do meanwhile. A step that is
# not caught is no staler than usual. The others see fewer updates of the slow one than before, so
# that theirs are fresher.
#
# </details>
#
# ## Do it yourself
#
# A live run with faults of your own. [docs/faults.md](../docs/faults.md) lists them: `kill`,
# `pause:2s`, `slow:0.3,30s` and more. Here `worker-1` has to stand still four times, for half a
# second each.

# %%
mine = api.run(
    "async",
    cluster="clusters/book.yaml",
    epochs=2,
    seed=1,
    record_every=1,
    faults=[
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
# **Question 4.** Four pauses: how many steps were caught by one, and why not all four? How large is
# the staleness of those? Does the training suffer?
#
# <details><summary>Answer</summary>
#
# Each step of `worker-1` with a staleness of a hundred or more was caught: it had read the
# parameters, stood still for half a second, and then applied a gradient for parameters that the
# others had long left behind. A pause that falls between two steps makes nothing stale: the worker
# reads anew when it wakes up. Between reading and applying it spends less than half of its time, so
# that of four pauses about two catch a step; run the cell again, and it may be another number. At a
# rate of 0.01 a few such updates among 3,300 do nothing that one could see.
#
# </details>
#
# ## Too many cooks
#
# Now in earnest. In the experiment `staleness` each worker holds its gradients for a while before
# it applies them, so that among *n* workers they are many updates old: *n* − 1 at most, on average;
# 0.75, 2.5 and 5.8 were measured for 2, 4 and 8 ([evidence](../docs/evidence/staleness.md)). First
# a thought, without any cluster. Minimize x²/2; its gradient is x. With gradients that are *d*
# updates old a step is
#
# $$x_{t+1} = x_t - r\, x_{t-d}$$
#
# For which rates *r* does this still come to rest? Try them:


# %%
def comes_to_rest(rate, delay, steps=3000):
    """Whether gradient descent on x²/2 with old gradients stays within its start."""
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
        low, high = (middle, high) if comes_to_rest(middle, delay) else (low, middle)
    rows.append((delay, low, 2 * math.sin(math.pi / (2 * (2 * delay + 1)))))
limits = pd.DataFrame(rows, columns=["delay", "largest rate, tried", "2 sin(π / (4d + 2))"])
limits.round(3)

# %% [markdown]
# **Question 5.** By what factor must the rate fall from one worker to eight? And what does the last
# column tell you for many workers?
#
# <details><summary>Answer</summary>
#
# From 2 to 0.21, to a tenth. For large *d* the sine is nearly its argument, and the limit nearly π
# / (2d): it falls in proportion to the staleness. (MNIST is not x²/2; what carries over is that the
# limit falls with the delay. A loss has directions that are steeper and flatter, and the steepest
# sets the limit.)
#
# </details>
#
# Now the same with a cluster: the loss of one worker and of eight, both with 300 updates, batches
# of 100 images and a rate of 1.

# %%
figure, axes = plt.subplots()
for number, name in enumerate(("staleness-1", "staleness-8")):
    steps = steps_of(sample(name))
    workers = steps["task"].nunique()
    curve(axes, steps["global_step"], steps["loss"], f"workers: {workers}", number)
    stale = steps["staleness"].astype(float)
    print(
        f"workers: {workers}, staleness: {stale.mean():.1f} on average, {stale.max():.0f} at most"
    )
axes.set(xlabel="update", ylabel="loss of one batch", yscale="log")
axes.legend()
plt.show()

# %% [markdown]
# One run of each may be chance. Here are 48 (`docs/evidence/staleness.csv`): two rates, two sizes
# of batches, 1 to 8 workers, three seeds each.

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
# **Question 6.** Two cures are often named for stale gradients: a smaller rate, and a smaller
# batch. Which of them works here, and what does it cost?
#
# <details><summary>Answer</summary>
#
# The smaller rate: at 0.1 eight workers end where one does. It costs progress. With a single
# worker, where nothing is stale, the rate of 1 is far ahead after as many updates. The smaller
# batch is no cure here: its loss rises with the workers as well, and is higher everywhere, because
# its gradients are noisier. [The evidence](../docs/evidence/staleness.md) has the intervals and the
# test of the trend.
#
# </details>
#
# ## Read on
#
# - [Staleness](../docs/lessons/staleness.md), [choosing](../docs/lessons/choosing.md), and [what
#   runs do when a task fails](../docs/endings.md).
# - `lab sweep staleness --over "workers=1,2,4,8; learning_rate=0.1,1" --cluster
#   clusters/laptop.yaml` makes such a table anew.
