"""What each rung of the ladder gains: from the book's loop to the quick listings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import pairs
from benchmarks.marks import put
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import steps_per_second
from benchmarks.trainings import PROGRAM, ROOT, by_hand, by_listing

BOOK: Final = ROOT / "benchmarks/book_loop.py"
LEAN: Final = ROOT / "benchmarks/lean_loop.py"
LISTING: Final = "tests/tf1_programs/async_fixed_ports.py --epochs 6"
"""A program in the book's shape, with its arguments: paths are relative to the project."""
LESSON: Final = ROOT / "docs/lessons/speed.md"
TRAINED_S: Final = 4
QUICK_SHARE: Final = 4

HOW: Final = (
    "Softmax, batches of 100, 1 ps and 3 workers; global steps per second while all three workers"
    " train, by their own records. Bare processes on 127.0.0.1, which begin together as soon as the"
    " last of them is ready; only the program in the book's shape (`{listing}`) runs by"
    " `lab run --listing`. The book's loop is"
    " benchmarks/book_loop.py, our own program of the same shape; the leanest loop is"
    " benchmarks/lean_loop.py. All rungs in turn, up the ladder and down again; each gain is the"
    " median of its ratio to the rung below in the same round."
)


@dataclass(frozen=True, slots=True)
class Rung:
    """One program with its flags.

    Attributes:
        name: In the table.
        program: Its file, in `scripts/` or by its path.
        flags: What makes this rung of it.
        rate: About how many global steps a second it makes, so that each trains equally long.
        settles_s: Seconds until the last worker has prepared its graph, and the others train.
    """

    name: str
    program: str | Path
    flags: tuple[str, ...]
    rate: int
    settles_s: int = 0


UNROLLED: Final = "async_unrolled.py"
_IN_MEMORY: Final = ("--packed=false", "--one_core=false", "--steps_per_call=1")

ASYNC: Final = (
    Rung("the book's loop", BOOK, (), 600),
    Rung("`async`: counted exactly", PROGRAM, (), 450),
    Rung("images in memory", UNROLLED, (*_IN_MEMORY, "--fetch=every"), 500),
    Rung("fetched only where recorded", UNROLLED, _IN_MEMORY, 600),
    Rung("110 steps in a call", UNROLLED, ("--packed=false", "--one_core=false"), 1800, 4),
    Rung("packed into one message", UNROLLED, ("--one_core=false",), 2000, 4),
    Rung("one core a task: `async-unrolled`", UNROLLED, (), 1800, 4),
    Rung("a call and its answer: `async-fast`", "async_fast.py", (), 3400),
)
SYNC: Final = (
    Rung("the book's loop with SyncReplicasOptimizer", BOOK, ("--sync=true",), 180),
    Rung("`sync`: ends cleanly", "mnist_sync.py", (), 130),
    Rung("a call and its answer", "sync_fast.py", ("--one_core=false",), 650),
    Rung("one core a task: `sync-fast`", "sync_fast.py", (), 950),
)
LISTED: Final = Rung("a program in the book's shape under `lab run --listing`", "", (), 0)
"""Its program and how long it trains: `Setting.listing`, or `LISTING`."""
LEANEST: Final = Rung("the leanest loop", LEAN, (), 1100)

LADDERS: Final[Mapping[str, tuple[Rung, ...]]] = {"ladder-async": ASYNC, "ladder-sync": SYNC}
LOOPS: Final[Mapping[str, tuple[Rung, ...]]] = {
    "ladder-async-listing": (LISTED, ASYNC[-1]),
    "ladder-async": ASYNC,
    "ladder-async-lean": (LEANEST, ASYNC[-1]),
}
"""The hand-written loops that `async-fast` is compared with: the first rung of each."""
RATIOS: Final = LOOPS | LADDERS
"""Key in `results.json` to rungs. The ratio is the last rung's rate over the first one's."""

AT_LEAST: Final = Target("at least", 5.0)
COMMAND: Final = "python -m benchmarks ladder"


def measure(setting: Setting) -> list[Outcome]:
    """Measure all rungs; RESULTS.md gets the ratios, the lesson every rung."""
    rates = _rates((LISTED, LEANEST, *ASYNC), setting) | _rates(SYNC, setting)
    found = [_outcome(key, rates, setting.listing or LISTING) for key in RATIOS]
    if not setting.quick:
        keep_in_lesson({outcome.key: outcome.to_json() for outcome in found})
    return found


def unmeasured() -> list[Outcome]:
    """The ratios without a figure, as RESULTS.md shows them before the first measurement."""
    return [_outcome(key, {}, LISTING) for key in RATIOS]


def _rates(rungs: Sequence[Rung], setting: Setting) -> dict[Rung, list[float]]:
    """Global steps a second of each rung in each round, up the ladder and down in turn."""
    say(f"the ladder to {rungs[-1].name}: {setting.pairs} rounds of {len(rungs)}")
    rates: dict[Rung, list[float]] = {rung: [] for rung in rungs}
    for number in range(setting.pairs):
        for rung in rungs if number % 2 == 0 else rungs[::-1]:
            rates[rung].append(told(rung.name, lambda rung=rung: _rate(rung, setting), _shown)())
    return rates


def _rate(rung: Rung, setting: Setting) -> float:
    if rung is LISTED:
        program, *arguments = shlex.split(setting.listing or LISTING)
        return steps_per_second(by_listing(setting.place, ROOT / program, arguments).records)
    steps = rung.rate * (rung.settles_s + TRAINED_S) // (QUICK_SHARE if setting.quick else 1)
    flags = (f"--global_steps={steps}", "--record_every=100", *rung.flags)
    made = by_hand(setting.place, flags, program=rung.program, together=True)
    return steps_per_second(made.records)


def _outcome(key: str, rates: Mapping[Rung, Sequence[float]], listing: str) -> Outcome:
    """One ratio; without rates, the row of a figure that is not measured yet."""
    rungs = RATIOS[key]
    columns = [rates.get(rung, ()) for rung in rungs]
    rounds = list(zip(*columns, strict=True))
    quick = Path(rungs[-1].program).stem.replace("_", "-")
    return Outcome(
        key=key,
        what=f"global steps a second, `{quick}` / {rungs[0].name}",
        unit="ratio",
        target=AT_LEAST,
        found=pairs.ratio([(each[-1], each[0]) for each in rounds]) if rounds else None,
        how=HOW.format(listing=listing),
        why_not="" if rounds else f"run `{COMMAND}` on an idle machine",
        details={
            rung.name: _shown(pairs.estimate(column).median)
            for rung, column in zip(rungs, columns, strict=True)
            if column
        },
        raw={"rungs": [rung.name for rung in rungs], "rounds": rounds},
    )


def loops_table(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """How many times as fast as each hand-written loop `async-fast` is, in Markdown.

    Args:
        kept: What `results.json` keeps, by key; a loop that is missing was not measured.
    """
    lines = [
        "| loop | global steps a second | `async-fast` is faster by a factor of |",
        "| --- | ---: | ---: |",
    ]
    for key, (loop, *_) in LOOPS.items():
        rounds = kept[key]["raw"]["rounds"] if key in kept else []
        cells = ["not measured yet", ""]
        if rounds:
            rate = pairs.estimate([each[0] for each in rounds]).median
            cells = [f"{rate:,.0f}", _gain(pairs.ratio([(each[-1], each[0]) for each in rounds]))]
        lines.append(f"| {loop.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def table(kept: Mapping[str, Any] | None) -> str:
    """The ladder as a table in Markdown: each rung, its rate, and its gains with their intervals.

    Args:
        kept: What `results.json` keeps of a ladder; None where it holds none.
    """
    if kept is None:
        return f"Not measured yet: run `{COMMAND}`.\n"
    raw = kept["raw"]
    lines = [
        "| rung | global steps a second | times the rung below | times the book's loop |",
        "| --- | ---: | ---: | ---: |",
    ]
    rounds: Sequence[Sequence[float]] = raw["rounds"]
    for place, name in enumerate(raw["rungs"]):
        rate = pairs.estimate([each[place] for each in rounds]).median
        gains = [
            _gain(pairs.ratio([(each[place], each[below]) for each in rounds])) if place else ""
            for below in (place - 1, 0)
        ]
        lines.append(f"| {name} | {rate:,.0f} | {gains[0]} | {gains[1]} |")
    return "\n".join(lines) + "\n"


def keep_in_lesson(kept: Mapping[str, Mapping[str, Any]], lesson: Path = LESSON) -> None:
    """Put all tables into the lesson, between their marks."""
    text = lesson.read_text(encoding="utf-8")
    for key in LADDERS:
        text = put(text, key, table(kept.get(key)))
    lesson.write_text(put(text, "loops", loops_table(kept)), encoding="utf-8")


def _gain(found: pairs.Estimate) -> str:
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


def _shown(rate: float) -> str:
    return f"{rate:,.0f} steps/s"
