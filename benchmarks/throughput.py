"""Training by `lab run` against the same program by hand, in global steps per second."""

from __future__ import annotations

from benchmarks import engine, pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import steps_per_second
from benchmarks.trainings import by_hand, by_lab

TARGETS = {"local": Target("at least", 0.97), "compose": Target("at least", 0.95)}
STEPS, QUICK_STEPS = 3_000, 1_500
SEED = 1

HOW = (
    "mnist_async.py, softmax, 1 ps and 3 workers, {steps:,} global steps, seed {seed}; global steps"
    " per second while all three workers train, from their own step records on both sides."
    " `lab run` boots its environment and takes it down again each time, so that nothing of it is"
    " there while the bare processes train (on 127.0.0.1, output into files, {sessions}); start-up"
    " and end are outside the time that counts."
)
ONE_SHELL = "all in one session, as from one shell with `&`"
FOUR_SHELLS = "each in a session of its own, as from four shells"


def measure(setting: Setting) -> list[Outcome]:
    """A ratio for each backend, on compose for both ways to do it by hand."""
    found = []
    for backend in setting.backends:
        if backend == "compose":
            # Containers are scheduled as units, as the sessions of several shells are, and those
            # of one shell are not: beside each of these it is another comparison.
            with engine.ready(setting.place) as why_not:
                found.append(_on(backend, setting, why_not, shells=False))
                found.append(_on(backend, setting, why_not, shells=True))
        else:
            found.append(_on(backend, setting, "", shells=False))
    return found


def _on(backend: str, setting: Setting, why_not: str, *, shells: bool) -> Outcome:
    steps = QUICK_STEPS if setting.quick else STEPS
    flags = (f"--global_steps={steps}", f"--seed={SEED}")
    raw: list[tuple[float, float]] = []
    hand = "by hand in four shells" if shells else "by hand"
    say(f"throughput on {backend} / {hand}: {why_not or f'{setting.pairs} pairs'}")
    if not why_not:
        raw = pairs.interleaved(
            told(
                f"lab run on {backend}",
                lambda: steps_per_second(by_lab(setting.place, backend, flags).records),
                _shown,
            ),
            told(
                hand,
                lambda: steps_per_second(by_hand(setting.place, flags, shells=shells).records),
                _shown,
            ),
            setting.pairs,
        )
    by_lab_alone, by_hand_alone = ([pair[side] for pair in raw] for side in (0, 1))
    return Outcome(
        key=f"throughput-{backend}{'-shells' if shells else ''}",
        what=f"training throughput, `lab run` on {backend} / {hand}",
        unit="ratio",
        target=TARGETS[backend],
        found=pairs.ratio(raw) if raw else None,
        how=HOW.format(steps=steps, seed=SEED, sessions=FOUR_SHELLS if shells else ONE_SHELL),
        why_not=why_not,
        details={
            "`lab run`": _shown(pairs.estimate(by_lab_alone).median),
            hand: _shown(pairs.estimate(by_hand_alone).median),
        }
        if raw
        else {},
        raw={"lab_steps_per_s": by_lab_alone, "by_hand_steps_per_s": by_hand_alone},
    )


def _shown(rate: float) -> str:
    return f"{rate:,.0f} steps/s"
