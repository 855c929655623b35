# %% [markdown]
# # How many parameter servers, how many workers?
#
# [中文](zh/04_how_many.ipynb)
#
# **Goal.** You can predict the speed of a training from bytes, and say when another worker or
# another server has no effect.
#
# **You need** notebook `01_async`, and 30 minutes.
#
# More workers compute more gradients, and more servers can receive them. What limits this?

# %%
import json
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from common import at_root, check, sample

import lab

at_root()

# %% [markdown]
# ## Predict
#
# The model `mlp` is 784 → 500 → 10, four bytes for each number. All machines have links of 100
# Mbit/s, in each direction separately. Assume that computing takes no time.
#
# - How many bytes has its largest variable?
# - There is one parameter server. How many steps per second can *one* worker make? How many can
#   *four* workers make together?
# - How many times as many updates per second do three workers on this host make as two?
#
# ## Run
#
# ### Count bytes
#
# In each step a worker reads all parameters and sends a gradient for each of them. `lab` has two
# models:

# %%
models = {
    "softmax": {"weights": 784 * 10, "biases": 10},
    "mlp": {"weights1": 784 * 500, "biases1": 500, "weights2": 500 * 10, "biases2": 10},
}
size = {name: 4 * sum(parameters.values()) for name, parameters in models.items()}
for name, count in size.items():
    print(f"{name:8} {count:>10,} bytes down and as many up, in each step of each worker")

# %% [markdown]
# ### Predict, then measure
#
# A step of a worker has two transfers, one after the other: it reads all parameters, and sends a
# gradient for each. All that the workers read leaves a server over its one link, and a variable is
# on one server as a whole. So a prediction needs two divisions. The table compares it with real
# runs on the configs in `notebooks/clusters/`. They use the simplest program, `staleness` without
# its pause: read, compute, apply.


# %%
def predicted(workers, held, bandwidth, compute_s=0.0):
    """Steps per second of all workers; `held` has the bytes on each server."""
    of_a_worker = 1 / (compute_s + 2 * max(held) / bandwidth)
    return min(workers * of_a_worker, bandwidth / max(held))


link = 100e6 / 8  # bytes per second
variables = tuple(4 * count for count in models["mlp"].values())
cases = {"links-1-worker": (1, 1), "links-4-workers": (4, 1), "links-2-servers": (4, 2)}
rows = []
for name, (workers, servers) in cases.items():
    held = [sum(variables[server::servers]) for server in range(servers)]
    measured = sample(name).summary.steps_per_s
    rows.append((name, workers, servers, predicted(workers, held, link), measured))
columns = ["sample", "workers", "servers", "predicted steps/s", "measured steps/s"]
pd.DataFrame(rows, columns=columns).round(2)

# %% [markdown]
# The training program `async` does one more thing with this model. Its chief keeps a moving average
# of the parameters on the server, and updates it after each of its own steps.

# %%
plain, averaged = (sample(name).summary.steps_per_s for name in ("links-1-worker", "links-average"))
print(f"one worker: {plain:.2f} steps/s, {averaged:.2f} with a moving average")
print(f"seconds for the size of the model on the link: {size['mlp'] / 12.5e6:.3f}")
print(f"seconds of a step: {1 / plain:.3f}, {1 / averaged:.3f} with a moving average")

# %% [markdown]
# ### The variables of each server
#
# TensorFlow places variables on the servers *round robin*: the first on server 0, the second on
# server 1, and so on. Another method is *greedy*: on the server that has the fewest bytes so far.


# %%
def round_robin(sizes, servers):
    """Bytes on each server."""
    held = [0] * servers
    for number, count in enumerate(sizes):
        held[number % servers] += count
    return held


def greedy(sizes, servers):
    """Bytes on each server."""
    held = [0] * servers
    for count in sizes:
        held[held.index(min(held))] += count
    return held


for way in (round_robin, greedy):
    print(f"{way.__name__:12}", [f"{held:,}" for held in way(variables, 2)])

# %% [markdown]
# TensorFlow does the same. The experiment `placement` reads the place of each variable from
# TensorFlow:

# %%
placed = lab.run("placement", cluster="clusters/two-ps.yaml")
pd.DataFrame(
    [(each.name, each.value) for each in placed.summary.results if each.name.startswith("bytes")]
).drop_duplicates()

# %% [markdown]
# ### On one host without links
#
# Between processes of one host no connection is as slow as 100 Mbit/s. There the tasks share the
# processor. Two workers, then three:

# %%
two = lab.run("async", cluster="clusters/laptop.yaml", epochs=1, seed=1)
three = lab.run("async", cluster="clusters/book.yaml", epochs=1, seed=1)
for name, run in (("two", two), ("three", three)):
    print(f"{name} workers: {run.summary.steps_per_s:.0f} updates a second")

# %% [markdown]
# With 1 to 8 workers, measured on two cores:

# %%
measured = json.loads(Path("benchmarks/scaling.json").read_text())
shapes = pd.DataFrame(
    each for each in measured["trainings"] if each["batch_size"] == 100 and each["cores"] == 2
)
shapes = shapes.query("way != 'multiworker' and not singly").drop_duplicates(
    ["way", "workers", "ps"]
)
batches = shapes["workers"].where(shapes["way"] == "sync", 1)  # of a global step
shapes["images_per_s"] = 100 * batches * shapes["steps_per_s"]
figure, panels = plt.subplots(1, 2, figsize=(12, 3.6), sharey=True)
for axes, (way, of_way) in zip(panels, shapes.groupby("way"), strict=True):
    for number, (servers, own) in enumerate(of_way.sort_values("workers").groupby("ps")):
        axes.plot(own["workers"], own["images_per_s"], "os^"[number] + "-", label=f"{servers} ps")
    axes.set(title=way, xlabel="workers", ylabel="images a second")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
panels[0].legend()
plt.tight_layout()
plt.show()
print(f"{measured['machine']['cores']} cores, {measured['when']}")

# %% [markdown]
# The cost of one batch of 100 images, in milliseconds of a core's time, for all tasks together:

# %%
batch_ms = 1000 * (shapes["worker_cpu_s"] + shapes["ps_cpu_s"]) / batches
shapes.assign(batch_ms=batch_ms).pivot_table(
    index=["way", "ps"], columns="workers", values="batch_ms"
).round(1)

# %% [markdown]
# ### A host that you do not have
#
# One to eight workers. Each is a machine with a GPU that computes a batch of `mlp` in 2 ms. The
# servers are on their own machines, and the network has 1 Gbit/s. **These predictions were not
# compared with a measurement.** They leave out the processors and the latency of the network.

# %%
network = 1e9 / 8
figure, axes = plt.subplots()
for number, servers in enumerate((1, 2, 4)):
    held = round_robin(variables, servers)
    speeds = [predicted(workers, held, network, compute_s=0.002) for workers in range(1, 9)]
    axes.plot(range(1, 9), speeds, "os^"[number] + "-", label=f"servers: {servers}")
axes.axhline(network / size["mlp"], color="grey", linestyle=":", label="the link of one server")
axes.set(xlabel="workers", ylabel="steps a second, predicted", ylim=(0, None))
axes.legend()
plt.show()
print([round(predicted(workers, [size["mlp"]], network, 0.002)) for workers in range(1, 9)])

# %% [markdown]
# ## What you should see
#
# - The link of the server limits all workers together. Two workers can already fill it.
# - A large variable is on one server as a whole, so a second server hardly helps. (A partitioner
#   can divide it; these programs use none.)
# - On one host, more workers add no core.
#
# With *n* workers, *p* servers, parameters of *S* bytes and *r* steps per second of each worker, a
# server sends and receives 2 *n r S* / *p* bytes per second, **if** the strategy spreads *S* evenly
# ([choosing](../docs/tutorials/lessons/choosing.md)).
#
# Replace each `...` by what you found in your runs:

# %%
check("how-many", bytes=..., limit=..., speed=..., gain=...)

# %% [markdown]
# ## Questions
#
# **Question 1.** Over links of 100 Mbit/s, how many steps per second can one worker make with
# `mlp`? How many can four workers make together?
#
# <details><summary>Answer</summary>
#
# 100 Mbit/s are 12.5 MB/s. One worker reads 1.59 MB (0.127 s), then sends 1.59 MB (0.127 s): 3.9
# steps per second. Four workers can read and send at the same time. But everything that they read
# is sent over the server's one link: 12.5 / 1.59 = 7.9 steps per second, all together. Two workers
# can already reach this number, so a third and a fourth worker add nothing.
#
# </details>
#
# **Question 2.** In the table of predicted and measured rates, the second server brought almost no
# gain. Why?
#
# <details><summary>Answer</summary>
#
# In these programs a variable is on one server as a whole. 1.57 of the 1.59 MB are one matrix, the
# weights of the hidden layer. The server with this matrix must send nearly as much as before. The
# second server's link is idle.
#
# </details>
#
# **Question 3.** How many times is the size of the model sent in a step with a moving average, and
# what are the additional transfers? Where else could the average be stored?
#
# <details><summary>Answer</summary>
#
# Five times instead of twice, one after the other. To update the average the chief reads the new
# parameters and the old average, and sends the change: down, down, up. If the server itself
# computed the average, nothing would be sent. Or the chief could store it in its own process, and
# only read the parameters. The cost of a step depends on the placement of each operation
# ([placement](../docs/tutorials/lessons/placement.md)). A single harmless line of code can change
# it.
#
# </details>
#
# **Question 4.** A model has ten layers, each with 1 MB of weights and 4 kB of biases, in this
# order: weights, biases, weights, biases … There are two servers. Which of the two methods would
# you use? Try `round_robin([1_000_000, 4_000] * 10, 2)`.
#
# <details><summary>Answer</summary>
#
# Greedy. Round robin puts all weights on server 0 and all biases on server 1: 10,000,000 bytes
# against 40,000. It counts variables, not bytes. Greedy gives each server about half. In `lab`:
# `lab run async --model mlp --ps_strategy greedy --cluster clusters/two-ps.yaml`. No strategy
# divides a single large matrix. A partitioner does; see [then and
# now](../docs/tutorials/lessons/then-and-now.md).
#
# </details>
#
# **Question 5.** With one server, eight workers process no more images per second than one or two
# workers. Which resource is used up? And what does a second server cost here, what do a third and a
# fourth cost?
#
# <details><summary>Answer</summary>
#
# The two cores, which have 2,000 ms per second. With one server a batch costs 3 to 5 ms, no matter
# which worker computes it. A worker and a server use 1.4 cores, eight workers and a server 1.9.
# More workers add work (messages, waking threads up) but no core.
#
# A second server makes a batch up to twice as expensive. A step then has messages to and from each
# server, and messages between servers so that they wait for each other. So the speed of one worker
# is little more than half. With more workers the loss is smaller where a batch becomes cheaper.
# With four servers a batch becomes more expensive again, because each server takes part in each
# step and each update. No line with more servers is ever above the line with one server: **here**
# they are useless.
#
# </details>
#
# **Question 6.** On the host that you do not have: from which number of workers on is another one a
# waste of money? And what would you buy next: servers, network, or another method of training?
#
# <details><summary>Answer</summary>
#
# From the fourth on. One worker makes 36 steps per second. The dotted line is at 79, which is 2.2
# times as much. So a third worker has some effect, and a fourth has none. The link that carries the
# large matrix is then full. The GPUs wait: four of them compute for less than a twentieth of the
# time. More servers hardly change the line, because the matrix stays on one of them. A faster
# network does. A method without servers also does: in a ring each machine sends less than twice the
# parameters, for any number of machines. Notebook `05_all_reduce` shows it.
#
# </details>
#
# **Question 7.** The blog behind `lab` has one server and three workers with two GPUs each. Would
# you give it a second server?
#
# <details><summary>Answer</summary>
#
# No. Its model is this `mlp`, and the second server would store at most 22,040 bytes. A larger
# batch per step would help more, because each byte on the network then serves more images.
#
# </details>
#
# ## Next
#
# - Notebook `05_all_reduce`: training without servers.
# - `lab simulate async --from last --workers 2,4` predicts softmax on this host. `lab run staleness
#   --model mlp --pause 0 --learning_rate 0.01 --cluster notebooks/clusters/one-server.yaml` runs
#   `mlp`.
