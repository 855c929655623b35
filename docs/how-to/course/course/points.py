"""Estimate pi: each worker counts the random points that fall into a quarter of a circle."""

import argparse
import math
import random
import signal

parser = argparse.ArgumentParser()
parser.add_argument("--job_name", default="worker")  # lab fills in these two
parser.add_argument("--task_index", type=int, default=0)
parser.add_argument("--points", type=int, default=1000)
given = parser.parse_args()

if given.job_name == "ps":
    signal.pause()  # lab ends a parameter server when all workers have ended

chance = random.Random(given.task_index)
inside = sum(math.hypot(chance.random(), chance.random()) < 1 for _ in range(given.points))
pi = 4 * inside / given.points
print(f"lab kind=result name=pi value={pi}")
print(f"lab kind=result name=error value={abs(pi - math.pi)}")
