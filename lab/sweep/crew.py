"""A description with another number of workers."""

from __future__ import annotations

import itertools
from typing import Final

from lab.config import Cluster
from lab.config.validation import check
from lab.errors import InputError

WORKER: Final = "worker"


def with_workers(cluster: Cluster, count: int) -> Cluster:
    """The same cluster with so many workers; its nodes take them in turn.

    Args:
        cluster: A valid description that has the job `worker`.
        count: How many, 1 or more.

    Raises:
        InputError: It has no such job, or so many do not fit.
    """
    job = cluster.jobs.get(WORKER)
    if job is None:
        raise InputError(f"{cluster.name!r} has no job {WORKER!r} to vary", "leave out workers")
    nodes = tuple(itertools.islice(itertools.cycle(job.on), count))
    jobs = {**cluster.jobs, WORKER: job.model_copy(update={"on": nodes})}
    # Read anew: a mere copy would keep the old one's digest.
    parts = {name: getattr(cluster, name) for name in Cluster.model_fields}
    changed = Cluster.model_validate({**parts, "jobs": jobs})
    problem = next(check(changed), None)
    if problem is not None:
        raise InputError(
            f"{cluster.name!r} cannot have {count} workers: {problem.text()}",
            "take fewer, or change the description",
        )
    return changed
