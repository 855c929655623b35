"""The gain of each rung of the ladder, from the book's loop to the quick listings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import pairs
from benchmarks.results import Outcome, Target, table
from benchmarks.trainings import (
    PROGRAM,
    ROOT,
    Setting,
    by_hand,
    by_listing,
    print_progress,
    steps_per_second,
    with_progress,
)

BOOK: Final = ROOT / "benchmarks/book_loop.py"
LEAN: Final = ROOT / "benchmarks/lean_loop.py"
LISTING: Final = "tests/tf1_programs/async_fixed_ports.py --epochs 6"
"""A program in the book's shape, with its arguments; the path is relative to the project."""
TRAINED_S: Final = 4
QUICK_SHARE: Final = 4

HOW: Final = (
    "Softmax, batches of 100, 1 ps and 3 workers; global steps per second while all three workers"
    " train, from the workers' records. The programs are processes on 127.0.0.1 without `lab`, and"
    " start to train together when the last one is ready. Only the program in the book's shape"
    " (`{listing}`) runs under `lab run --listing`. The book's loop is benchmarks/book_loop.py, our"
    " own program of the same shape. The leanest loop is benchmarks/lean_loop.py. Each round"
    " measures all rungs, alternately upwards and downwards. A gain is the median of the ratios in"
    " the same round."
)


@dataclass(frozen=True, slots=True)
class Rung:
    """One program with its flags.

    Attributes:
        name: The name in the table.
        program: The program's file, in `scripts/` or with a path.
        flags: The program's flags for this rung.
        rate: The approximate global steps per second, so that all rungs train equally long.
    """

    name: str
    program: str | Path
    flags: tuple[str, ...]
    rate: int


_ALL_CORES: Final = "--one_core=false"
_ONE_STEP: Final = (_ALL_CORES, "--steps_per_call=1")

ASYNC: Final = (
    Rung("the book's loop", BOOK, (), 600),
    Rung("`async`: counted exactly", PROGRAM, (), 450),
    Rung("`async-fast`: one step in a call", "async_fast.py", _ONE_STEP, 900),
    Rung("`async-fast`: 110 steps in a call", "async_fast.py", (_ALL_CORES,), 2500),
    Rung("`async-fast`: one core a task", "async_fast.py", (), 3400),
)
SYNC: Final = (
    Rung("the book's loop with SyncReplicasOptimizer", BOOK, ("--sync=true",), 180),
    Rung("`sync`: ends cleanly", "mnist_sync.py", (), 130),
    Rung("`sync-fast`: one step in a call", "sync_fast.py", _ONE_STEP, 450),
    Rung("`sync-fast`: 110 steps in a call", "sync_fast.py", (_ALL_CORES,), 650),
    Rung("`sync-fast`: one core a task", "sync_fast.py", (), 950),
)
LISTED: Final = Rung("a program in the book's shape under `lab run --listing`", "", (), 0)
"""`LISTING` sets its program and the length of its training."""
LEANEST: Final = Rung("the leanest loop", LEAN, (), 1100)

LADDERS: Final[Mapping[str, tuple[Rung, ...]]] = {"ladder-async": ASYNC, "ladder-sync": SYNC}
LOOPS: Final[Mapping[str, tuple[Rung, ...]]] = {
    "ladder-async-listing": (LISTED, ASYNC[-1]),
    "ladder-async": ASYNC,
    "ladder-async-lean": (LEANEST, ASYNC[-1]),
}
"""The comparisons of `async-fast` with hand-written loops; each loop is the first rung."""
RATIOS: Final = LOOPS | LADDERS
"""Key in `results.json` to rungs. The ratio is the last rung's rate over the first one's."""

AT_LEAST: Final = Target("at least", 5.0)


def measure(setting: Setting) -> list[Outcome]:
    """Measure all rungs: the ratios for RESULTS.md, and every rung for the lesson."""
    rates = _rates((LISTED, LEANEST, *ASYNC), setting) | _rates(SYNC, setting)
    return [outcome(key, rates) for key in RATIOS]


def _rates(rungs: Sequence[Rung], setting: Setting) -> dict[Rung, list[float]]:
    """Measure global steps per second of each rung in rounds, alternately up and down."""
    print_progress(f"the ladder to {rungs[-1].name}: {setting.pairs} rounds of {len(rungs)}")
    rates: dict[Rung, list[float]] = {rung: [] for rung in rungs}
    for number in range(setting.pairs):
        for rung in rungs if number % 2 == 0 else rungs[::-1]:
            rates[rung].append(
                with_progress(rung.name, lambda rung=rung: _rate(rung, setting), _shown)()
            )
    return rates


def _rate(rung: Rung, setting: Setting) -> float:
    if rung is LISTED:
        program, *arguments = shlex.split(LISTING)
        return steps_per_second(by_listing(setting.place, ROOT / program, arguments).records)
    steps = rung.rate * TRAINED_S // (QUICK_SHARE if setting.quick else 1)
    flags = (f"--global_steps={steps}", "--record_every=100", *rung.flags)
    made = by_hand(setting.place, flags, program=rung.program, together=True)
    return steps_per_second(made.records)


def outcome(key: str, rates: Mapping[Rung, Sequence[float]]) -> Outcome:
    """Return one ratio from the rates of all rounds."""
    rungs = RATIOS[key]
    columns = [rates[rung] for rung in rungs]
    rounds = list(zip(*columns, strict=True))
    fast = Path(rungs[-1].program).stem.replace("_", "-")
    return Outcome(
        key=key,
        what=f"global steps a second, `{fast}` / {rungs[0].name}",
        unit="ratio",
        target=AT_LEAST,
        found=pairs.ratio([(each[-1], each[0]) for each in rounds]),
        how=HOW.format(listing=LISTING),
        details={
            rung.name: _shown(pairs.estimate(column).median)
            for rung, column in zip(rungs, columns, strict=True)
        },
        raw={"rungs": [rung.name for rung in rungs], "rounds": rounds},
    )


def tables(kept: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the tables of the lesson by their marks.

    Args:
        kept: The content of `results.json`.
    """
    ladders = {key: ladder_table(kept[key]["raw"]) for key in LADDERS}
    return {**ladders, "loops": loops_table({key: kept[key]["raw"] for key in LOOPS})}


def loops_table(raw: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the factors between `async-fast` and the hand-written loops."""
    head = ["loop", "global steps a second", "`async-fast` is faster by a factor of"]
    rows = []
    for key, (loop, *_) in LOOPS.items():
        rounds = raw[key]["rounds"]
        rate = pairs.estimate([each[0] for each in rounds]).median
        rows.append([loop.name, f"{rate:,.0f}", _gain(rounds, -1, 0)])
    return table(head, rows, "---:")


def ladder_table(raw: Mapping[str, Any]) -> str:
    """Return each rung's rate and gains with intervals."""
    head = ["rung", "global steps a second", "ratio to the row above", "ratio to the book's loop"]
    rows, rounds = [], raw["rounds"]
    for place, name in enumerate(raw["rungs"]):
        rate = pairs.estimate([each[place] for each in rounds]).median
        gains = [_gain(rounds, place, below) if place else "" for below in (place - 1, 0)]
        rows.append([name, f"{rate:,.0f}", *gains])
    return table(head, rows, "---:")


def _gain(rounds: Sequence[Sequence[float]], upper: int, lower: int) -> str:
    found = pairs.ratio([(each[upper], each[lower]) for each in rounds])
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


def _shown(rate: float) -> str:
    return f"{rate:,.0f} steps/s"
