# %% [markdown]
# # All-reduce against parameter servers
#
# [中文](zh/05_all_reduce.ipynb)
#
# **Goal.** You can explain the ring that replaces parameter servers, count its bytes, and decide
# which of the two to use.
#
# **You need** notebook `02_sync`, and 25 minutes.
#
# All-reduce needs no server. Every worker has all parameters, and in each step all workers
# calculate the mean of their gradients together.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import at_root, check, curve, sample, steps_of

import lab

at_root()

# %% [markdown]
# ## Predict
#
# - How many workers have other parameters than the first one at the end, bit by bit?
# - One of two workers runs for only 30% of the time. What share of the steps per second is left?
# - Four workers train `mlp` (1.59 MB) over links of 100 Mbit/s. How many images per second do a
#   ring and one asynchronous parameter server process? A step of the ring uses 400 images, an
#   asynchronous step 100.
#
# ## Run
#
# ### A ring in twenty lines
#
# Each of *n* workers has a vector of gradients, divided into *n* pieces. In the first half, each
# worker sends a piece to its neighbour *n* − 1 times, and the neighbour adds it to its own piece.
# Then each worker has one piece that is the sum of all workers. In the second half, these finished
# pieces are sent around the ring once.


# %%
def ring_all_reduce(vectors):
    """The sum of all vectors at every worker, and the count of numbers that each worker sent."""
    n = len(vectors)
    pieces = [np.array_split(vector.astype(float), n) for vector in vectors]
    sent = [0] * n
    for half in ("add", "replace"):
        for turn in range(n - 1):
            shift = turn if half == "add" else turn - 1
            # All send at the same time: first copy what each sends, then deliver it.
            parcels = [((worker - shift) % n, pieces[worker]) for worker in range(n)]
            parcels = [(number, own[number].copy()) for number, own in parcels]
            for worker, (number, parcel) in enumerate(parcels):
                neighbour = pieces[(worker + 1) % n]
                neighbour[number] = neighbour[number] + parcel if half == "add" else parcel
                sent[worker] += parcel.size
    return [np.concatenate(own) for own in pieces], sent


random = np.random.default_rng(0)
vectors = [random.standard_normal(7850) for _ in range(4)]
results, sent = ring_all_reduce(vectors)
print("the sum everywhere:", all(np.allclose(result, sum(vectors)) for result in results))
print("the same bits everywhere:", all(np.array_equal(result, results[0]) for result in results))
print("sent by each worker:", sent, "of", vectors[0].size, "numbers")

# %% [markdown]
# ### A real ring
#
# `multiworker` uses TensorFlow's own ring: `MultiWorkerMirroredStrategy`. At the end the program
# collects every worker's parameters and compares them bit by bit.

# %%
run = lab.run("multiworker", cluster="clusters/workers.yaml", model="softmax", epochs=1, seed=1)
for task in run.summary.tasks:
    print(f"{task.task}: {task.local_step} steps, accuracy {task.accuracy:.4f}")
for result in run.summary.results:
    print(f"{result.name}: {result.value:g}")

# %% [markdown]
# The same with a slow worker:

# %%
slow = lab.run(
    "multiworker",
    cluster="clusters/workers.yaml",
    model="softmax",
    epochs=1,
    seed=1,
    fault="slow:0.3 worker-1",
)
print(
    f"{run.summary.steps_per_s:.1f} steps a second, {slow.summary.steps_per_s:.1f} with the fault"
)

# %% [markdown]
# And with a killed one. The run fails, so `lab.run` must not raise its error (`check=False`):

# %%
killed = lab.run(
    "multiworker",
    cluster="clusters/workers.yaml",
    global_steps=300,
    seed=1,
    fault="kill worker-1 after 100 steps",
    check=False,
)
print(killed.summary.state, "at global step", killed.summary.global_step)

# %% [markdown]
# ### Over slow links
#
# Two sample runs of four workers with the model `mlp`, over links of 100 Mbit/s from every machine:
# a ring, and one asynchronous parameter server.

# %%
rate, parameters, workers = 100e6 / 8, 4 * (784 * 500 + 500 + 500 * 10 + 10), 4
most = {
    "links-ring": rate / (2 * (workers - 1) / workers * parameters),
    "links-4-workers": rate / parameters,
}
rows = []
for name, images in (("links-ring", 100 * workers), ("links-4-workers", 100)):
    steps = sample(name).summary.steps_per_s
    rows.append((name, most[name], steps, steps * images))
pd.DataFrame(rows, columns=["sample", "steps/s at most", "steps/s", "images/s"]).round(1)

# %% [markdown]
# ### Without slow links
#
# The next figure shows the number of images that all workers of a run have processed together, over
# time. The slope of a line is the number of images per second. (Softmax, three epochs each.)

# %%
figure, axes = plt.subplots()
for number, (name, images) in enumerate((("ring", 200), ("sync", 300), ("async", 100))):
    steps = steps_of(sample(name)).query("task == 'worker-0'")
    curve(axes, steps["seconds"], steps["global_step"] * images / 1000, name, number, over=1)
axes.set(xlabel="seconds", ylabel="thousand images, all workers together")
axes.legend()
plt.show()

# %% [markdown]
# All tasks share two cores, and there the three methods are almost equally fast. But do not compare
# the ends of the lines. The ring has two workers, the others have three workers and a server. And
# in the ring an epoch is one pass of *all* workers together over the 55,000 images, so three epochs
# are 165,000 images. In the others each worker makes its own pass, and three epochs of three
# workers are 495,000. So the ring's line ends at a third of their height.
#
# ### How many servers are as fast as a ring?
#
# A server sends and receives 2 *n r S* / *p* bytes per second, and each link of a ring 4 (*n* − 1)
# *r S* / *n*. If both are equal:

# %%
table = pd.DataFrame({"workers": [2, 4, 8, 16, 64]})
table["servers needed"] = table["workers"] ** 2 / (2 * (table["workers"] - 1))
table.round(1)

# %% [markdown]
# So you need about one server for two workers, and only if the parameters can be spread evenly.
# Notebook `04_how_many` shows a model for which this is not possible.
#
# ## What you should see
#
# - All workers have the same parameters, bit by bit.
# - A ring needs links to neighbours only. Its training is synchronous, so all workers have the
#   speed of the slowest.
# - If one worker is missing, no step completes.
#
# Replace each `...` by what you found in your runs:

# %%
check("all-reduce", differ=..., share=..., last_step=...)

# %% [markdown]
# ## Questions
#
# **Question 1.** How many times does each worker send the size of the whole vector, for *n*
# workers? And for a very large *n*?
#
# <details><summary>Answer</summary>
#
# 2 (*n* − 1) / *n* times: *n* − 1 pieces of 1/*n* in each half. For four workers that is 1.5, as
# printed. It never reaches 2. (This is the smallest possible number: P. Patarasuk and X. Yuan,
# 2009.)
#
# </details>
#
# **Question 2.** "The same bits everywhere" is not obvious, because floating-point sums depend on
# their order. Why does the ring give each worker the same bits?
#
# <details><summary>Answer</summary>
#
# Each piece is added up once, in one order, on its way around the ring. The second half only copies
# the result. Suppose that each worker added up all vectors itself, and began with its own. Then
# rounding would differ, and after many steps the copies of the parameters would differ, too.
#
# </details>
#
# **Question 3.** How many images does a step of the real ring use? Which experiment with parameter
# servers is the same algorithm?
#
# <details><summary>Answer</summary>
#
# Two workers with 100 each: 200. It is the same as `sync` with two workers: the same mean of
# gradients for the same parameters, one update for all. (An epoch here is one pass of *all* workers
# together over the images, 275 steps of 200.) The result is the same; only the task that computes
# the mean is another.
#
# </details>
#
# **Question 4.** What are the limits of the ring and of the server over links of 100 Mbit/s, in
# images per second?
#
# <details><summary>Answer</summary>
#
# The ring: each worker sends 1.5 · 1.59 = 2.39 MB in a step. At 12.5 MB/s these are 5.2 steps per
# second, or 2,100 images. The server: 12.5 / 1.59 = 7.9 steps per second, or 790 images. So the
# ring should be more than twice as fast.
#
# </details>
#
# **Question 5.** The measured rates are below these limits. What do the links do in the rest of the
# time?
#
# <details><summary>Answer</summary>
#
# They are idle. A step of the ring first computes and then sends, and its 2 (*n* − 1) messages wait
# for each other. The asynchronous server comes nearer to its limit: while one worker computes, it
# sends the parameters of another. ([docs/explanation/scaling.md](../docs/explanation/scaling.md)
# shows the cost of a step
# apart from its bytes.)
#
# </details>
#
# **Question 6.** Here are three situations. Would you use servers or a ring?
#
# 1. Eight equal GPUs in one host.
# 2. Twelve machines, half of them three times as fast as the others.
# 3. Rented machines that can be taken away at any moment.
#
# <details><summary>Answer</summary>
#
# 1. All-reduce (`mirrored`): no data leaves the host, and no worker waits for long.
# 2. Servers, asynchronous: a ring trains synchronously, so it is as slow as its slowest worker, and
#    half of the machines would mostly wait. (Or rings within each half.)
# 3. Servers with a coordinator, or `async` with `--on-failure continue`: when one worker of a ring
#    fails, the ring is broken and all of them stop
#    ([Horovod](../docs/tutorials/lessons/horovod.md) has
#    tested it).
#
# [Choosing](../docs/tutorials/lessons/choosing.md) has the table.
#
# </details>
#
# ## Next
#
# - Notebook `06_reproduce`: is a printed result reproduced?
# - [All-reduce](../docs/tutorials/lessons/all-reduce.md),
#   [Horovod](../docs/tutorials/lessons/horovod.md): a ring
#   outside TensorFlow.
