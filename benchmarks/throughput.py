"""The throughput of `lab run`, relative to the same program without `lab`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import engine, pairs
from benchmarks.containers import by_containers
from benchmarks.measure import Setting, print_progress, with_progress
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import steps_per_second
from benchmarks.trainings import CLUSTER, WORKERS, Training, Workplace, by_hand, by_lab

TARGETS = {
    "local": Target("at least", 0.97),
    "compose": Target("at least", 0.95),
    "slurm": Target("at least", 0.97),
}
STEPS, QUICK_STEPS = 3_000, 1_500
SEED = 1

HOW = (
    "mnist_async.py, softmax, 1 ps and {workers} workers, {steps:,} global steps, seed {seed};"
    " global steps per second while all workers train, from the step records of both sides."
    " `lab run` boots and removes its environment each time, so that nothing of it runs while the"
    " other side trains ({way}). Start and end are not counted."
)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to train without `lab`.

    Attributes:
        key: The end of the outcome's key.
        name: The name in the table.
        how: A description.
        train: The function that trains with the given flags of the program.
        cluster: The config of `lab`, with the same tasks.
        workers: The number of workers.
    """

    key: str
    name: str
    how: str
    train: Callable[[Workplace, Sequence[str]], Training]
    cluster: Path = CLUSTER
    workers: int = WORKERS


ONE_SHELL = Way(
    "",
    "by hand",
    "processes on 127.0.0.1, output into files, all in one session like jobs of one shell",
    by_hand,
)
FOUR_SHELLS = Way(
    "-shells",
    "by hand in four shells",
    "processes on 127.0.0.1, output into files, each in its own session: Linux schedules each"
    " session as one unit, like a container",
    partial(by_hand, shells=True),
)
CONTAINERS = Way(
    "-containers",
    "in bare containers",
    "four `docker run` on an internal network of the same engine, without `lab`",
    by_containers,
)
BESIDE = {"containers": CONTAINERS, "hand": ONE_SHELL, "shells": FOUR_SHELLS}


def measure(setting: Setting) -> list[Outcome]:
    """Measure a ratio for each backend, on compose for each way without `lab`."""
    found = []
    for backend in setting.backends:
        if backend == "compose":
            with engine.ready(setting.place) as why_not:
                ways = [BESIDE[setting.beside]] if setting.beside else BESIDE.values()
                found += [measure_way(backend, setting, why_not, way) for way in ways]
        else:
            found.append(measure_way(backend, setting, "", ONE_SHELL))
    return found


def measure_way(backend: str, setting: Setting, why_not: str, way: Way) -> Outcome:
    """Measure a backend against a way without `lab`."""
    steps = QUICK_STEPS if setting.quick else STEPS
    flags = (f"--global_steps={steps}", f"--seed={SEED}")
    raw: list[tuple[float, float]] = []
    print_progress(f"throughput on {backend} / {way.name}: {why_not or f'{setting.pairs} pairs'}")
    if not why_not:
        raw = pairs.interleaved(
            with_progress(
                f"lab run on {backend}",
                lambda: steps_per_second(
                    by_lab(setting.place, backend, flags, way.cluster).records
                ),
                _shown,
            ),
            with_progress(
                way.name,
                lambda: steps_per_second(way.train(setting.place, flags).records),
                _shown,
            ),
            setting.pairs,
        )
    by_lab_alone, by_hand_alone = ([pair[side] for pair in raw] for side in (0, 1))
    return Outcome(
        key=f"throughput-{backend}{way.key}",
        what=f"training throughput, `lab run` on {backend} / {way.name}",
        unit="ratio",
        target=TARGETS[backend],
        found=pairs.ratio(raw) if raw else None,
        how=HOW.format(workers=way.workers, steps=steps, seed=SEED, way=way.how),
        why_not=why_not,
        details={
            "`lab run`": _shown(pairs.estimate(by_lab_alone).median),
            way.name: _shown(pairs.estimate(by_hand_alone).median),
        }
        if raw
        else {},
        raw={"lab_steps_per_s": by_lab_alone, "by_hand_steps_per_s": by_hand_alone},
    )


def _shown(rate: float) -> str:
    return f"{rate:,.0f} steps/s"
