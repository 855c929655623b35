# %% [markdown]
# # Sync: one update for all
#
# In asynchronous training nobody waits. Here all do: three workers compute gradients for the *same*
# parameters, and the server makes one update of their mean. You will check by hand that this is the
# same as one worker with a larger batch, compare both ways by steps, by images and by seconds, and
# find out why the book's synchronous program never came to its end. Twenty minutes.

# %%
import random
from collections import deque

import numpy as np
import pandas as pd
from common import at_root, figure, sample, steps_of

from lab import api
from lab.task.sdk.data import load_mnist

at_root()

# %% [markdown]
# ## Three small batches, or one large one
#
# Softmax regression, its gradient written out in NumPy: the error of each image's predicted shares,
# times the image.


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
# **Question 1.** So what is one round of three synchronous workers, told without any distribution?
# And what would have to change if their batches were of different sizes?
#
# <details><summary>Answer</summary>
#
# One step of a single worker with all 300 images: the mean of the three gradients is the gradient
# of the joined batch, up to rounding. If the batches had different sizes the mean would have to be
# weighted by them.
#
# </details>
#
# ## A round needs all
#
# One pass over the images by three workers. Each of them makes 550 local steps.

# %%
run = api.run("sync", cluster="clusters/book.yaml", epochs=1, seed=1)
workers = [task for task in run.summary.tasks if task.job_name == "worker"]
print("global step:", run.summary.global_step)
pd.DataFrame(
    [(task.task, task.local_step, task.accuracy) for task in workers],
    columns=["task", "local steps", "accuracy"],
)

# %% [markdown]
# **Question 2.** Three times 550 local steps, and what is the global step? Compare with the 1,650
# of notebook `01_async`, after as many images. And why do all workers report the same accuracy this
# time?
#
# <details><summary>Answer</summary>
#
# 550: three gradients make one update. Nobody goes on before the last update is made, and so all
# test the same parameters.
#
# </details>
#
# ## Which is better?
#
# Two sample runs of three epochs each, asynchronous and synchronous, with the same seed, rate
# (0.01) and batch size (100). The same loss three times: over updates, over wall time, and over
# images that all workers together have seen.

# %%
made = {"async": sample("async"), "sync": sample("sync")}
for name, each in made.items():
    whole = each.summary
    print(f"{name}: accuracy {whole.accuracy:.4f}, {whole.steps_per_s:.0f} updates a second")

# %%
figure("loss", *made.values())

# %% [markdown]
# **Question 3.** In the first picture the two fall together, in the third async is ahead. How can
# both be true? Which picture would you show to someone who pays for data, and which to someone who
# pays for time?
#
# <details><summary>Answer</summary>
#
# After as many *updates* of the same width both have gone equally far. But a synchronous update has
# used three batches for it, so after as many *images* it has made a third of the updates. Whoever
# pays for images (or labels) looks at the third picture, whoever waits or rents by the hour at the
# second. Over updates alone every way with larger batches is flattered
# ([choosing](../docs/lessons/choosing.md)).
#
# </details>
#
# **Question 4.** Before you conclude that sync is worse: what is the mean of three gradients good
# for, if not for a larger number of updates? Test your idea with the next cell; change the rate.

# %%
rate = 0.03
wide = api.run("sync", cluster="clusters/book.yaml", epochs=1, seed=1, learning_rate=rate)
print(f"sync, one epoch, rate {rate}: accuracy {wide.summary.accuracy:.4f}")
print(f"sync, one epoch, rate 0.01: accuracy {run.summary.accuracy:.4f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# The mean of three is less noisy, and can bear a wider step. With three times the rate a third of
# the updates goes about as far; notebook `01_async` shows the accuracy that async has after as many
# images. (The post that this lab reproduces trains its larger network synchronously at a rate of
# 0.8, and asynchronously at 0.01: [evidence](../docs/evidence/blog.md).)
#
# </details>
#
# ## Steadier?
#
# The book says that the loss is steadier in synchronous training. How far does the logarithm of the
# loss scatter around its own running mean, between updates 400 and 1,600?


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
# **Question 5.** Which of the three lines says that the book is right, and why is the second no
# smaller than the first? By which factor does the third differ?
#
# <details><summary>Answer</summary>
#
# The third. The loss of one batch of 100 images scatters because batches differ, and they do so in
# either training. What moves the parameters in a synchronous update are 300 images; their mean loss
# scatters by 1/√3 = 0.58 of that, as any mean of three independent numbers does. So it is the
# *update* that is steadier, and a plot of single batches does not show it.
#
# </details>
#
# ## The program that does not end
#
# How does a worker know that it may go on? The book's program, like every one with TensorFlow's
# `SyncReplicasOptimizer`, uses a queue of *tokens*. An update puts three of them into it, marked
# with the new global step. Each worker takes one, computes a gradient, hands it in with the mark of
# its token, and comes back for the next. A gradient whose mark is older than the global step is
# dropped: it was computed for old parameters.
#
# And each worker leaves when it has made its *own* 550 steps. Here is this machinery in a few
# lines. `speeds` says how often a worker gets its turn.


# %%
def printed_program(steps, speeds, seed):
    """Global step, steps of each worker, and who still waits, when nothing moves any more."""
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
# **Question 6.** What has happened in the rows where somebody still `waits`? What would mend it: a
# longer time-out, more tokens, or something else?
#
# <details><summary>Answer</summary>
#
# The tokens of all lie in one queue, and a quick worker takes more of them than its share. So it is
# through with its 550 steps before the others, and leaves. Two are left; as soon as both have
# handed in a gradient and no token lies in the queue, the round needs a third gradient, which
# nobody will ever make. A time-out only tells it sooner, and more tokens only let workers run ahead
# further, whose gradients are then too old. There are two mends. Stop by the *global* step, which
# is the same for all: nobody leaves before the last update is made. The lab's own program
# (`scripts/mnist_sync.py`) does this. It keeps the one queue, so that a quick worker may still take
# two tokens of a round; when the chief has made as many updates as were asked for it closes the
# queue, and whoever still waits for a token is told to leave. Or give each worker tokens of its
# own, so that it takes part in each round exactly once, and all come to their last step together.
# `lab run --listing … --mend` mends the printed program like that
# ([listings](../docs/listings.md)), since a program that counts its own steps may stay as it is
# then. Run unchanged with one epoch, the printed program stood still at global step 537. (The three
# that are `dropped` in each row are those of the tokens that lay in the queue at the start, marked
# 0.)
#
# </details>
#
# **Question 7.** Is it a matter of unequal workers? Guess first: with a worker that is twice or
# four times as quick, how often does the training stand still, and where? And how often among three
# that are exactly alike?

# %%
rows = []
for speeds in ((1, 1, 1), (1.2, 1, 1), (2, 1, 1), (4, 1, 1)):
    ends = [printed_program(550, speeds, seed) for seed in range(40)]
    stands_still = np.mean(["waits" in end["state"] for end in ends])
    rows.append((speeds, stands_still, np.mean([end["global step"] for end in ends])))
pd.DataFrame(rows, columns=["speeds", "stands still", "mean global step at the end"])

# %% [markdown]
# <details><summary>Answer</summary>
#
# Hardly. It stands still nearly always, also where all are alike: chance makes one of them first,
# and first is enough. A quicker worker leaves earlier, and the training stops a few updates
# earlier. So a program like this may well come to its end once, when its author tries it, and hang
# for most of its readers.
#
# </details>
#
# ## Read on
#
# - [The lesson](../docs/lessons/sync.md); `docs/lessons/then-and-now.md` says what
#   `SyncReplicasOptimizer` became.
# - `sync-fast` does without a chief and without tokens ([the lesson on
#   speed](../docs/lessons/speed.md)).
# - What if one of the three is slow? Notebook `03_stragglers`.
