"""From a source's recipes to the runs that are made for it, in one environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.backends import Say
from lab.backends.choose import backends
from lab.cli import planning
from lab.cli.output import say
from lab.cli.sites import find_site
from lab.cli.terms import terms
from lab.config import Cluster
from lab.reproduce.claims import Source
from lab.reproduce.recipes import crews, points, role_of_point, wanted
from lab.run import project
from lab.run.launch import Order
from lab.run.run_queue import turn
from lab.sweep.crew import with_workers
from lab.sweep.grid import Point
from lab.sweep.making import Share
from lab.task.faults import parse
from lab.task.protocol import STALL_S


@dataclass(frozen=True, slots=True)
class Asked:
    """What holds for all runs.

    Attributes:
        cluster: The description.
        path: Its file.
        root: The project's directory.
        backend: The backend's name, or `auto`.
        gpus: How GPUs are pinned.
        repeats: How often each kind of run is made.
        seed: The seed of the first repeat; each further one adds 1.
        quick: Whether the quick listings are run.
    """

    cluster: Cluster
    path: Path
    root: Path
    backend: str
    gpus: str
    repeats: int
    seed: int
    quick: bool

    def shares(self, source: Source, home: Path) -> list[Share]:
        """Plan a source's runs, one share for each number of workers; nothing is started.

        Raises:
            LabError: A run does not fit the description or the box, or no backend can be used.
        """
        first, *others = crews(source)
        return [
            self._share(source, home, first, say),
            # They are on the same backend, for the same reason.
            *(self._share(source, home, workers, lambda _line: None) for workers in others),
        ]

    def _share(self, source: Source, home: Path, workers: int | None, tell: Say) -> Share:
        cluster = self.cluster if workers is None else with_workers(self.cluster, workers)
        draft = planning.draft(cluster, self.gpus, explain=False)
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
        runs = points(source, self.repeats, workers)
        roles = {role_of_point(each) for each in runs}
        orders = {role: self._order(source, role, cluster, draft) for role in roles}

        def order(point: Point) -> Order:
            return orders[role_of_point(point)](self.seed + point.repeat)

        alone = partial(turn, site.backend, site.plan.name, wait=False, say=tell)
        return Share(runs, order, site.found, site.boot, alone)

    def _order(
        self, source: Source, role: str, cluster: Cluster, draft: planning.Draft
    ) -> Callable[[int], Order]:
        """What is asked for in a role, from its seed."""
        recipe = wanted(source.recipes[role], quick=self.quick)
        experiment = project.experiment(recipe.experiment)
        project.check_jobs(experiment, cluster, self.path, self.root)
        project.check_program(experiment, self.root)
        agreed = terms(
            experiment,
            cluster,
            draft.plan,
            own=False,
            policy=None,
            start=recipe.start,
            ready_s=None,
            stall_s=STALL_S,
            faults=[parse(line) for line in recipe.faults],
        )
        return lambda seed: Order(
            experiment=experiment,
            argv=(*experiment.args, *recipe.argv(seed)),
            plan=draft.plan,
            root=self.root,
            cluster_file=self.path,
            data_dir="",
            terms=agreed,
        )
