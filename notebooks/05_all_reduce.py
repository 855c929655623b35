# %% [markdown]
# # All-reduce against parameter servers
#
# No server at all: every worker holds all parameters, and in each step all of them agree on the
# mean of their gradients. You will write the ring that does this, count its bytes, watch a real one
# over slow links beside a parameter server, and decide which to take. Fifteen minutes.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from common import at_root, curve, sample, steps_of

from lab import api

at_root()

# %% [markdown]
# ## A ring in twenty lines
#
# Each of *n* workers has a vector of gradients, cut into *n* pieces. In the first half each passes
# one piece to its neighbour *n* − 1 times, who adds it to its own: then each worker has one piece
# that is the sum of all. In the second half those finished pieces go around once.


# %%
def ring_all_reduce(vectors):
    """The sum of all vectors, at every worker; and the numbers that each worker has sent."""
    n = len(vectors)
    pieces = [np.array_split(vector.astype(float), n) for vector in vectors]
    sent = [0] * n
    for half in ("add", "replace"):
        for turn in range(n - 1):
            shift = turn if half == "add" else turn - 1
            # All send at the same time: first look what is sent, then deliver.
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
# **Question 1.** How often does each worker send the size of the whole vector, for *n* workers?
# What is it for very many?
#
# <details><summary>Answer</summary>
#
# 2 (*n* − 1) / *n* times: *n* − 1 pieces of 1/*n* in each half. For four workers that is 1.5, as
# printed; it never reaches 2. (This is the least that is possible: P. Patarasuk and X. Yuan, 2009.)
#
# </details>
#
# **Question 2.** "The same bits everywhere" is not self-evident: floating-point sums depend on
# their order. Why does the ring give each worker the same bits?
#
# <details><summary>Answer</summary>
#
# Each piece is added up once, in one order, at the places that it passes; the second half only
# copies the result. If each worker added up all vectors by itself, each beginning with its own,
# rounding would differ, and after many steps the copies of the parameters with it.
#
# </details>
#
# ## A real ring
#
# `multiworker` is TensorFlow's own: `MultiWorkerMirroredStrategy`. At the end the program gathers
# every worker's parameters and compares them bit by bit.

# %%
run = api.run("multiworker", cluster="clusters/workers.yaml", model="softmax", epochs=1, seed=1)
for task in run.summary.tasks:
    print(f"{task.task}: {task.local_step} steps, accuracy {task.accuracy:.4f}")
for result in run.summary.results:
    print(f"{result.name}: {result.value:g}")

# %% [markdown]
# **Question 3.** How many images has a step of this run seen, and to which experiment with
# parameter servers is it equal, as an algorithm?
#
# <details><summary>Answer</summary>
#
# Two workers with 100 each: 200. It is `sync` with two workers: the same mean of gradients for the
# same parameters, one update for all. (An epoch here is one pass of *all* workers together over the
# images, 275 steps of 200.) Who computes the mean has changed, not what is computed.
#
# </details>
#
# ## Over slow links
#
# Four workers, the model `mlp` (1.59 MB), links of 100 Mbit/s out of every machine. On one side the
# ring, on the other one parameter server, asynchronous.
#
# **Question 4.** Predict both in images a second. A step of the ring sees 400 images, an
# asynchronous one 100.
#
# <details><summary>Answer</summary>
#
# The ring: each worker sends 1.5 · 1.59 = 2.39 MB in a step, at 12.5 MB/s 5.2 steps a second, 2,100
# images. The server: 12.5 / 1.59 = 7.9 steps a second, 790 images. So the ring should be more than
# twice as quick.
#
# </details>

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
# **Question 5.** What are the links doing in the time that is missing to the bound?
#
# <details><summary>Answer</summary>
#
# Nothing, for a while: a ring's step is computing, then sending, one after the other, and its 2
# (*n* − 1) messages wait for each other. The asynchronous server comes nearer to its bound, since
# while one worker computes, another one's parameters are on the way.
# ([docs/scaling.md](../docs/scaling.md) counts what a step costs beside its bytes.)
#
# </details>
#
# ## And without slow links?

# %%
figure, axes = plt.subplots()
for number, (name, images) in enumerate((("ring", 200), ("sync", 300), ("async", 100))):
    steps = steps_of(sample(name)).query("task == 'worker-0'")
    curve(axes, steps["seconds"], steps["global_step"] * images / 1000, name, number, over=1)
axes.set(xlabel="seconds", ylabel="thousand images, all workers together")
axes.legend()
plt.show()

# %% [markdown]
# Images that all workers of a run have seen together, over time; how steep a line is tells how many
# a second. (Softmax, three epochs each.) All tasks share two cores, and the three ways are nearly
# alike there. Do not compare the ends, though. The ring has two workers, the others three and a
# server. And in the ring an epoch is one pass of *all* workers together over the 55,000 images, so
# that three of them are 165,000; in the others each worker makes a pass of its own, and three
# epochs of three workers are 495,000. Therefore the ring's line ends at a third of their height.
#
# **Question 6.** Three situations. Servers or ring?
#
# 1. Eight equal cards in one box.
# 2. Twelve machines, half of them three times as fast as the others.
# 3. Rented machines that may be taken away at any moment.
#
# <details><summary>Answer</summary>
#
# 1. All-reduce (`mirrored`): nothing leaves the box, and nobody waits for long.
# 2. Servers, asynchronous: a ring goes at the pace of the slowest, half of the machines would
#    mostly wait. (Or rings within each half.)
# 3. Servers with a coordinator, or `async` with `--on-failure continue`: when one member of a ring
#    is gone, the ring is open and all of them stop ([Horovod](../docs/lessons/horovod.md) has tried
#    it).
#
# [Choosing](../docs/lessons/choosing.md) has the table.
#
# </details>
#
# ## How many servers would make up for it?
#
# A server carries 2 *n r S* / *p* bytes a second, each link of a ring 4 (*n* − 1) *r S* / *n*. Set
# equal:

# %%
table = pd.DataFrame({"workers": [2, 4, 8, 16, 64]})
table["servers needed"] = table["workers"] ** 2 / (2 * (table["workers"] - 1))
table.round(1)

# %% [markdown]
# So about one server for two workers, and only if the parameters can be spread evenly; notebook
# `04_how_many` shows a model for which they cannot.
#
# ## Read on
#
# - [All-reduce](../docs/lessons/all-reduce.md), [Horovod](../docs/lessons/horovod.md): a ring
#   outside of TensorFlow.
# - `lab run multiworker --cluster clusters/workers.yaml --fault "kill worker-1 after 100 steps"`:
#   who notices?
