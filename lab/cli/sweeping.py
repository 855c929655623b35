"""From what a user asks of a sweep to what is made in each environment."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from lab.backends import Say
from lab.backends.choose import backends
from lab.cli import planning
from lab.cli.sites import find_site
from lab.cli.terms import terms
from lab.config import Cluster
from lab.run.launch import Order
from lab.run.run_queue import turn
from lab.sweep.crew import with_workers
from lab.sweep.grid import Point
from lab.sweep.making import Share
from lab.task.experiments import MAX_SEED, Experiment, hyperparameters


@dataclass(frozen=True, slots=True)
class Asked:
    """What holds for all runs of a sweep.

    Attributes:
        experiment: The experiment.
        words: The user's words for its program.
        cluster: The description.
        path: Its file.
        root: The project's directory.
        backend: The backend's name, or `auto`.
        gpus: How GPUs are pinned.
        stall_s: Seconds without a step that are too many.
        seed: The seed of the first repeat, where the user gives none; each further one adds 1, so
            that every setting is tried with the same seeds.
    """

    experiment: Experiment
    words: tuple[str, ...]
    cluster: Cluster
    path: Path
    root: Path
    backend: str
    gpus: str
    stall_s: float
    seed: int = field(default_factory=lambda: secrets.randbelow(MAX_SEED))

    def share(self, points: Sequence[Point], home: Path, tell: Say) -> Share:
        """Plan the runs of one environment; nothing is started.

        Args:
            points: They have as many workers.
            home: The directory of all runs.
            tell: Receives which backend it is, and why.

        Raises:
            LabError: So many workers do not fit the description or the box, or no backend can be
                used here.
        """
        workers = points[0].workers
        cluster = self.cluster if workers is None else with_workers(self.cluster, workers)
        draft = planning.draft(
            cluster, self.gpus, explain=False, tensorflow=self.experiment.tensorflow
        )
        plan = draft.plan
        site = find_site(
            self.backend,
            draft,
            backends(),
            description=str(self.path),
            root=self.root,
            home=home,
            say=tell,
            heed=partial(draft.heed, strict=False),
        )
        agreed = terms(
            self.experiment,
            cluster,
            plan,
            own=False,
            policy=None,
            start={},
            ready_s=None,
            stall_s=self.stall_s,
            faults=(),
        )
        order = Order(
            experiment=self.experiment,
            argv=(),
            plan=plan,
            root=self.root,
            cluster_file=self.path,
            data_dir="",
            terms=agreed,
        )

        return Share(
            points,
            lambda point: replace(order, argv=self._argv(point)),
            site.found,
            site.boot,
            partial(turn, site.backend, site.plan.name, wait=False, say=tell),
        )

    def _argv(self, point: Point) -> tuple[str, ...]:
        words = (*self.experiment.args, *self.words, *point.flags)
        if "seed" not in self.experiment.flags:
            return words
        given = hyperparameters(self.experiment, self.words).get("seed")
        first = given if isinstance(given, int) else self.seed
        return (*words, f"--seed={first + point.repeat}")
