# %% [markdown]
# # How many parameter servers, how many workers?
#
# More workers compute more gradients, and more servers take them in. How far does that go, and what
# stops it? You will predict a training's speed from bytes alone, hold the prediction against a
# simulation and against real runs over links of 100 Mbit/s, and see why a second parameter server
# may change nothing at all. Twenty minutes.

# %%
import json
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from common import at_root, sample

from lab import api
from lab.simulation import MEASURED, Box, Shape, Way, simulate

at_root()

# %% [markdown]
# ## Count bytes
#
# In each step a worker reads all parameters and sends as many gradients, four bytes each. Two
# models of this lab:

# %%
models = {
    "softmax": {"weights": 784 * 10, "biases": 10},
    "mlp": {"weights1": 784 * 500, "biases1": 500, "weights2": 500 * 10, "biases2": 10},
}
size = {name: 4 * sum(parameters.values()) for name, parameters in models.items()}
for name, count in size.items():
    print(f"{name:8} {count:>10,} bytes down and as many up, in each step of each worker")

# %% [markdown]
# **Question 1.** One parameter server, and links of 100 Mbit/s between all machines (in each
# direction by itself). How many steps a second can *one* worker make with `mlp`, if computing took
# no time? How many can *four* make together?
#
# <details><summary>Answer</summary>
#
# 100 Mbit/s are 12.5 MB/s. One worker reads 1.59 MB (0.127 s), then sends 1.59 MB (0.127 s): 3.9
# steps a second. Four workers can read and send at the same time, but all that they read comes out
# of the server's one link: 12.5 / 1.59 = 7.9 steps a second, all together. A third and a fourth
# worker add nothing to what two could do at best.
#
# </details>
#
# ## Predict, then measure
#
# `lab.simulation` goes through a step message by message, with costs that were measured on one
# machine ([docs/scaling.md](../docs/scaling.md) tells how, and how far off it was where that could
# be checked). Beside it stand runs that were really made, on the descriptions in
# `notebooks/clusters/`. They are of the plainest program, `staleness` without its pause: read,
# compute, apply.

# %%
box = Box(cores=2, nodes=0, bandwidth=100e6 / 8)  # nodes=0: a machine for each task
costs = replace(MEASURED, spread=0.1)  # no two steps take exactly as long
variables = tuple(4 * count for count in models["mlp"].values())
cases = {"links-1-worker": (1, 1), "links-4-workers": (4, 1), "links-2-servers": (4, 2)}
rows = []
for name, (workers, servers) in cases.items():
    shape = Shape(Way.ASYNC, workers, servers, variables=variables)
    forecast = simulate(shape, costs, box)
    measured = sample(name).summary.steps_per_s
    rows.append((name, workers, servers, forecast.steps_per_s, forecast.link_busy, measured))
columns = ["sample", "workers", "servers", "simulated steps/s", "busiest link", "measured steps/s"]
pd.DataFrame(rows, columns=columns).round(2)

# %% [markdown]
# **Question 2.** The second server brought hardly anything. Guess why before you read on: think of
# what the two of them hold.
#
# <details><summary>Answer</summary>
#
# A variable lies on one server as a whole. 1.57 of the 1.59 MB are one matrix, the weights of the
# hidden layer, and the server that holds it has to send nearly as much as before. The second
# server's link is idle.
#
# </details>
#
# The training program `async` does one thing more with this model: its chief keeps a moving average
# of the parameters, on the server, and renews it after each of its own steps.

# %%
plain, averaged = (sample(name).summary.steps_per_s for name in ("links-1-worker", "links-average"))
print(f"one worker: {plain:.2f} steps/s, {averaged:.2f} with a moving average")
print(f"seconds for the size of the model on the link: {size['mlp'] / 12.5e6:.3f}")
print(f"seconds of a step: {1 / plain:.3f}, {1 / averaged:.3f} with a moving average")

# %% [markdown]
# **Question 3.** How many times does the size of the model travel in such a step, and what are the
# additional journeys? Where else could the average be kept?
#
# <details><summary>Answer</summary>
#
# Five times instead of twice, one after the other. To renew the average the chief reads the new
# parameters and the old average, and sends the change: down, down, up. Had the server itself
# computed it nothing would travel at all; or the chief could keep it at home, and read the
# parameters alone. What a step costs is decided by where each operation is placed
# ([placement](../docs/lessons/placement.md)), often in a line that looks harmless.
#
# </details>
#
# ## Who holds what?
#
# TensorFlow deals variables to the servers *round robin*: the first to server 0, the second to
# server 1, and so on. Another way is *greedy*: to whoever holds the fewest bytes so far.


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
# TensorFlow agrees; the experiment `placement` asks it where each variable went:

# %%
placed = api.run("placement", cluster="clusters/two-ps.yaml")
pd.DataFrame(
    [(each.name, each.value) for each in placed.summary.results if each.name.startswith("bytes")]
).drop_duplicates()

# %% [markdown]
# **Question 4.** A model of ten layers, each with 1 MB of weights and 4 kB of biases, in this
# order: weights, biases, weights, biases … Two servers. Which of the two ways would you take? Try
# `round_robin([1_000_000, 4_000] * 10, 2)`.
#
# <details><summary>Answer</summary>
#
# Greedy. Round robin puts each weight on server 0 and each bias on server 1: 10,000,000 bytes
# against 40,000. It counts variables, not bytes. Greedy gives either about half. In the lab: `lab
# run async --model mlp --ps_strategy greedy --cluster clusters/two-ps.yaml`. No strategy divides a
# single large matrix; what does is named in [then and now](../docs/lessons/then-and-now.md) (a
# partitioner).
#
# </details>
#
# ## On one box without links
#
# Between processes of one box nothing is as narrow as 100 Mbit/s. There the processor is what is
# shared. Measured on two cores, softmax, 1 to 8 workers:

# %%
measured = json.loads(Path("benchmarks/scaling.json").read_text())
shapes = pd.DataFrame(
    {"way": each["way"], "workers": each["workers"], "ps": each["ps"], **each["measured"]}
    for each in measured["shapes"]
    if each["batch_size"] == 100
)
shapes = shapes.loc[:, ~shapes.columns.duplicated()].query("way != 'multiworker'")
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
# And what one batch of 100 images costs, in milliseconds of a core's time, all tasks together:

# %%
batch_ms = 100 * 1000 * shapes["cpu_s"] * shapes["steps_per_s"] / shapes["images_per_s"]
shapes.assign(batch_ms=batch_ms).pivot_table(
    index=["way", "ps"], columns="workers", values="batch_ms"
).round(1)

# %% [markdown]
# **Question 5.** With one server eight workers see no more images a second than one or two do. What
# is used up? And what does a second server cost here, what a third and a fourth?
#
# <details><summary>Answer</summary>
#
# The two cores, which have 2,000 ms a second to give. With one server a batch costs 3 to 4 ms,
# whoever computes it: a worker and a server use 1.4 cores, eight workers and a server 1.9. Who adds
# workers adds work (messages, waking threads up) and no core.
#
# A second server doubles what a batch costs, since a step has messages to and from each, and
# messages between servers to wait for each other. So one worker starts at half the pace, and
# with more workers some of it comes back, where a batch gets cheaper then. With four servers
# `sync` pays once more: each of them takes part in each step and each update. `async` with one
# worker hardly does, for softmax has but two variables, and two servers hold them all. No line with
# more servers is ever above that with one: **here** they are of no use. What such a picture teaches
# is how a *step* is made of parts; for the speed of a large box ask the simulation.
#
# </details>
#
# ## A box that you do not have
#
# One to eight workers, each a machine with a card that computes a batch of `mlp` in 2 ms; servers
# on machines of their own; a network of 1 Gbit/s. **These are predictions; nobody has checked
# them.**

# %%
fast = replace(costs, device_s=0.002)
network = Box(cores=16, nodes=0, bandwidth=1e9 / 8, latency_s=20e-6)
rows = []
for servers in (1, 2, 4):
    for workers in range(1, 9):
        forecast = simulate(Shape(Way.ASYNC, workers, servers, variables=variables), fast, network)
        rows.append(
            (servers, workers, forecast.steps_per_s, forecast.link_busy, forecast.computing)
        )
columns = ["servers", "workers", "steps/s", "busiest link", "computing"]
predicted = pd.DataFrame(rows, columns=columns)
figure, axes = plt.subplots()
for number, (servers, own) in enumerate(predicted.groupby("servers")):
    axes.plot(own["workers"], own["steps/s"], "os^"[number] + "-", label=f"servers: {servers}")
limit = network.bandwidth / size["mlp"]
axes.axhline(limit, color="grey", linestyle=":", label="the link of one server")
axes.set(xlabel="workers", ylabel="steps a second, predicted", ylim=(0, None))
axes.legend()
plt.show()
predicted.query("servers == 1").round(2)

# %% [markdown]
# (The lines stay below the dotted one, and with four workers and more than one server there is a
# dip. That is the simulation's, do not expect it of a network. Its links send one message after the
# other, in the order of arrival; so a few bytes that a worker waits for, such as the number of the
# step, wait until another worker's 1.57 MB are through. With four workers these waits fall into a
# rhythm in which the link is idle for a quarter of the time. A real link sends packets of 1.5 kB,
# of several messages in turn. In a simulation that lets small messages pass at once all lines lie
# on the dotted one from four workers on.)
#
# **Question 6.** From how many workers on is the money for another one wasted? And what would you
# buy next: servers, network, or another way to train?
#
# <details><summary>Answer</summary>
#
# From the fourth on. One worker makes 33 steps a second, and the dotted line is at 79, 2.4 times as
# much, whatever the details of the network: a third worker is of some use. A fourth adds 3% here,
# and less than a tenth where small messages pass at once. The link that carries the large matrix is
# nearly full then, which the column `busiest link` shows, and the cards wait: they compute for less
# than a twentieth of the time. More servers do not move the line, since they cannot share the
# matrix. A faster network does. So does a way without servers: in a ring each machine carries less
# than twice the parameters, however many there are. That is notebook `05_all_reduce`.
#
# </details>
#
# A rule for the road ([choosing](../docs/lessons/choosing.md)): with *n* workers, *p* servers,
# parameters of *S* bytes and *r* steps a second of each worker, a server carries 2 *n r S* / *p*
# bytes a second, **if** the strategy spreads *S* evenly.
#
# **Question 7.** The blog behind this lab has one server and three workers with two GPUs each.
# Would you give it a second server?
#
# <details><summary>Answer</summary>
#
# Its model is this `mlp`: no. The second one would hold 22,040 bytes at best. A larger batch per
# step would help more, since then each byte on the wire is worth more images.
#
# </details>
#
# The same on the command line: `lab simulate async --workers 1,4 --ps 1,2 --network 100mbit` (it
# simulates softmax), and `lab run staleness --model mlp --pause 0 --learning_rate 0.01 --cluster
# notebooks/clusters/one-server.yaml`.
