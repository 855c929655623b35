# %% [markdown]
# # Sync: one update for all
#
# [中文](zh/02_sync.ipynb)
#
# **Goal.** You know what a synchronous update is, can compare it with asynchronous updates by
# steps, images and seconds, and can say why the book's synchronous program never ended.
#
# **You need** notebook `01_async`, and 30 minutes.
#
# In asynchronous training no worker waits. In synchronous training all workers wait: they compute
# gradients for the *same* parameters, and the server makes one update with their mean.

# %%
import random
from collections import deque

import numpy as np
import pandas as pd
from common import at_root, check, load_mnist, sample, steps_of

import lab

at_root()

# %% [markdown]
# ## Predict
#
# - Three workers make 550 local steps each, with batches of 100 images. How many updates is that?
#   How many images does one update use?
# - An update needs only two of three gradients. How many more gradients are
#   computed?
# - One worker is slow, and an update needs only two gradients. Which worker makes the fewest steps?
#
# ## Run
#
# ### Three small batches, or one large one
#
# This is softmax regression, with its gradient written in NumPy. The gradient is the error of each
# image's predicted probabilities, times the image.


# %%
def gradient(weights, images, labels):
    """The gradient of the mean cross-entropy for weights [784, 10]."""
    scores = images @ weights
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(labels)), labels] -= 1
    return images.T @ shares / len(labels)


train = load_mnist().train
weights = np.random.default_rng(1).standard_normal((784, 10))
batches = [slice(start, start + 100) for start in (0, 100, 200)]
of_each = [gradient(weights, train.images[part], train.labels[part]) for part in batches]
of_all = gradient(weights, train.images[:300], train.labels[:300])
print("largest difference:", abs(np.mean(of_each, axis=0) - of_all).max())
print("largest gradient:  ", abs(of_all).max())

# %% [markdown]
# ### A round needs all workers
#
# One pass over the images by three workers. Each of them makes 550 local steps.

# %%
run = lab.run("sync", cluster="clusters/book.yaml", epochs=1, seed=1)
workers = [task for task in run.summary.tasks if task.job_name == "worker"]
print("global step:", run.summary.global_step)
pd.DataFrame(
    [(task.task, task.local_step, task.accuracy) for task in workers],
    columns=["task", "local steps", "accuracy"],
)

# %% [markdown]
# ### Which is better?
#
# Two sample runs of three epochs each, asynchronous and synchronous, with the same seed, rate
# (0.01) and batch size (100). The figure shows the same loss three times: over updates, over wall
# time, and over the number of images that all workers together have processed.

# %%
made = {"async": sample("async"), "sync": sample("sync")}
for name, each in made.items():
    whole = each.summary
    print(f"{name}: accuracy {whole.accuracy:.4f}, {whole.steps_per_s:.0f} updates a second")

# %%
lab.figure("loss", made.values())

# %% [markdown]
# Now the same with three times the rate; try others, too:

# %%
rate = 0.03
wide = lab.run("sync", cluster="clusters/book.yaml", epochs=1, seed=1, learning_rate=rate)
print(f"sync, one epoch, rate {rate}: accuracy {wide.summary.accuracy:.4f}")
print(f"sync, one epoch, rate 0.01: accuracy {run.summary.accuracy:.4f}")

# %% [markdown]
# ### Is the loss steadier?
#
# The book says that the loss is steadier in synchronous training. To check it, we calculate how
# much the logarithm of the loss varies around its own running mean, between updates 400 and 1,600.


# %%
def scatter(losses):
    """The standard deviation of log loss around the mean of its neighbours."""
    log = np.log(losses.astype(float))
    return (log - log.rolling(31, center=True, min_periods=10).mean()).std()


within = {name: steps_of(each).query("400 <= global_step <= 1600") for name, each in made.items()}
rounds = within["sync"].groupby("local_step")["loss"].mean()  # of the three workers
print(f"async, the loss of a batch:        {scatter(within['async']['loss']):.3f}")
print(f"sync, the loss of a batch:         {scatter(within['sync']['loss']):.3f}")
print(f"sync, the mean loss of a round:    {scatter(rounds):.3f}")

# %% [markdown]
# ### A backup worker, and a slow one
#
# An update needs only two of the three gradients. In the second run, `worker-1` is slow.

# %%
backup = lab.run("sync", cluster="clusters/book.yaml", epochs=1, seed=1, replicas_to_aggregate=2)
slow = lab.run(
    "sync",
    cluster="clusters/book.yaml",
    epochs=1,
    seed=1,
    replicas_to_aggregate=2,
    fault="slow:0.3 worker-1",
)
pd.DataFrame(
    {
        name: {task.task: task.local_step for task in each.summary.tasks if task.local_step}
        | {"updates": each.summary.global_step}
        for name, each in {"backup": backup, "backup, slow worker-1": slow}.items()
    }
)

# %% [markdown]
# ### The program that does not end
#
# How does a worker know that it can continue? The book's program uses a queue of *tokens*, like
# every program with TensorFlow's `SyncReplicasOptimizer`. An update puts three tokens into the
# queue, marked with the new global step. All workers take tokens from this one queue: a fast worker
# may take two, and both its gradients may enter one update. A gradient with a mark that is older
# than the global step is dropped, because it was computed for old parameters.
#
# Each worker leaves when it has made its *own* 550 steps. The next cell simulates this in a few
# lines. `speeds` sets how often each worker gets a turn.


# %%
def printed_program(steps, speeds, seed):
    """Global step, steps and state of each worker, when no worker can continue."""
    draw = random.Random(seed)
    n = len(speeds)
    tokens, global_step, handed_in, dropped = deque([0] * n), 0, 0, 0
    mark, made, state = [0] * n, [0] * n, ["computes"] * n
    while "computes" in state:
        busy = [worker for worker in range(n) if state[worker] == "computes"]
        worker = draw.choices(busy, [speeds[each] for each in busy])[0]
        if mark[worker] >= global_step:
            handed_in += 1
        else:
            dropped += 1
        if handed_in == n:  # The round is full: one update, and a token for each.
            global_step, handed_in = global_step + 1, 0
            tokens.extend([global_step] * n)
        state[worker] = "waits"
        for each in draw.sample(range(n), n):
            if state[each] == "waits" and tokens:
                mark[each] = tokens.popleft()
                made[each] += 1
                state[each] = "has left" if made[each] == steps else "computes"
    return {"global step": global_step, "dropped": dropped, "steps": made, "state": state}


pd.DataFrame([printed_program(550, (1.2, 1, 1), seed) for seed in range(6)])

# %% [markdown]
# A worker that is twice or four times as fast, and three equal workers:

# %%
rows = []
for speeds in ((1, 1, 1), (1.2, 1, 1), (2, 1, 1), (4, 1, 1)):
    ends = [printed_program(550, speeds, seed) for seed in range(40)]
    hangs = np.mean(["waits" in end["state"] for end in ends])
    rows.append((speeds, hangs, np.mean([end["global step"] for end in ends])))
pd.DataFrame(rows, columns=["speeds", "share that hangs", "mean global step at the end"])

# %% [markdown]
# ## What you should see
#
# - One update for three gradients: a third of the updates from the same images. All workers report
#   the same accuracy.
# - With a backup worker, a third of the gradients is more than the updates need. This helps if
#   another worker is late in each round. A worker that is always slow is always the one that is
#   dropped.
# - The mean of three gradients varies less than one gradient. The loss of the *training* is not
#   steadier: we measured 0.99 of the asynchronous spread
#   ([results](../docs/explanation/results.md)).
#
# Replace each `...` by what you found in your runs (for a task write `"worker-0"`):

# %%
check("sync", rounds=..., images=..., extra=..., left_out=...)

# %% [markdown]
# ## Questions
#
# **Question 1.** How can you describe one round of three synchronous workers as a training without
# distribution? And what must change if their batches have different sizes?
#
# <details><summary>Answer</summary>
#
# It is one step of a single worker with all 300 images. The mean of the three gradients is the
# gradient of the joined batch, up to rounding. If the batches have different sizes, the mean must
# be weighted by these sizes.
#
# </details>
#
# **Question 2.** Three workers made 550 local steps each. Compare the global step with the 1,650 of
# notebook `01_async`, after the same number of images. Why do all workers report the same accuracy
# this time?
#
# <details><summary>Answer</summary>
#
# 550: three gradients make one update. No worker ends before the last update is made, so all test
# the same parameters.
#
# </details>
#
# **Question 3.** In the first picture of the loss the two curves fall together. In the third
# picture async is ahead. How can both be true? Which picture would you show to someone who pays for
# data, and which to someone who pays for time?
#
# <details><summary>Answer</summary>
#
# After the same number of *updates* with the same rate, both have moved equally far. But a
# synchronous update has used three batches. So after the same number of *images* the synchronous
# training has made a third of the updates. For someone who pays for images (or labels) the third
# picture is the right one. For someone who waits, or rents by the hour, it is the second. A picture
# over updates alone makes every method with larger batches look better than it is
# ([choosing](../docs/tutorials/lessons/choosing.md)).
#
# </details>
#
# **Question 4.** Is sync worse? What is the advantage of the mean of three gradients?
#
# <details><summary>Answer</summary>
#
# The mean of three gradients has less noise, so it allows a higher rate. With three times the rate,
# a third of the updates moves the parameters about as far. Notebook `01_async` shows the accuracy
# of async after the same number of images. (The post that this lab reproduces trains its larger
# network synchronously at a rate of 0.8, and asynchronously at 0.01:
# [evidence](../docs/evidence/blog.md).)
#
# </details>
#
# **Question 5.** Of the three lines about the spread of the loss, why is the second not smaller
# than the first? By which factor does the third differ?
#
# <details><summary>Answer</summary>
#
# The loss of one batch of 100 images varies because batches differ, and this is the same in both
# trainings. The third line is the mean loss of a round, of 300 images. It varies by 1/√3 = 0.58 of
# that, like any mean of three independent numbers. So the mean of a *round* is steadier. This says
# nothing about the training: a plot of single batches shows the same spread for both.
#
# </details>
#
# **Question 6.** In the simulation, what has happened in the rows in which a worker still `waits`?
# What would fix it: a longer time-out, more tokens, or something else?
#
# <details><summary>Answer</summary>
#
# A fast worker takes more than its share of the tokens. So it finishes its 550 steps before the
# others, and leaves. Two workers remain. At some point both have sent a gradient and the queue has
# no token. The round then needs a third gradient, but no worker computes it. A time-out only
# reports this earlier. More tokens only let workers run further ahead, and their gradients are then
# too old.
#
# There are two fixes. First: stop at the *global* step, which is the same for all workers. Then no
# worker leaves before the last update is made. `scripts/mnist_sync.py` does this. It keeps the one
# queue, so a fast worker can still take two tokens of a round. When the chief has made the
# requested number of updates, it closes the queue. All workers that still wait for a token then
# leave.
#
# Second: give each worker its own tokens. Then each worker takes part in each round exactly once,
# and all finish together. `lab run --listing=mend …` fixes the printed program in this way
# ([printed programs](../docs/how-to/printed-programs.md)), because then a program that counts its
# own steps can stay unchanged.
#
# The printed program, unchanged and with one epoch, hung at global step 537. (The three gradients
# that are `dropped` in each row belong to the tokens that were in the queue at the start, marked
# 0.)
#
# </details>
#
# **Question 7.** Do unequal workers cause this? How often does the training hang with a worker that
# is twice or four times as fast, and how often with three equal workers?
#
# <details><summary>Answer</summary>
#
# Hardly. The training hangs nearly always, even if all workers are equal. By chance one worker is
# the first, and this is enough. A faster worker leaves earlier, and the training hangs a few
# updates earlier. So such a program can run to its end once, when its author tests it, and then
# hang for most of its readers.
#
# </details>
#
# ## Next
#
# - Notebook `03_stragglers`: what a slow worker does to both methods.
# - [The lesson](../docs/tutorials/lessons/sync.md); [then and
#   now](../docs/tutorials/lessons/then-and-now.md) explains
#   what became of `SyncReplicasOptimizer`.
# - `sync-fast` needs neither a chief nor tokens ([the lesson on
#   speed](../docs/tutorials/lessons/speed.md)).
