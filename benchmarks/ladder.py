"""What each rung of the ladder gains: from the book's loop to the quick listings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks import pairs
from benchmarks.measure import Setting, say, told
from benchmarks.outcome import Outcome, Target
from benchmarks.steps import steps_per_second
from benchmarks.trainings import PROGRAM, ROOT, by_hand

BOOK: Final = ROOT / "benchmarks/book_loop.py"
LESSON: Final = ROOT / "docs/lessons/speed.md"
TRAINED_S: Final = 4
QUICK_SHARE: Final = 4

HOW: Final = (
    "Softmax, batches of 100, 1 ps and 3 workers by hand as bare processes on 127.0.0.1; global"
    " steps per second while all three workers train, by their own records; they begin together,"
    " as soon as the last of them is ready. The book's loop is"
    " benchmarks/book_loop.py; all rungs in turn, up the ladder and down again; each gain is the"
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
LADDERS: Final[Mapping[str, tuple[tuple[Rung, ...], Target]]] = {
    "async": (ASYNC, Target("at least", 5.0)),
    "sync": (SYNC, Target("at least", 5.0)),
}


def measure(setting: Setting) -> list[Outcome]:
    """The whole ladder of each way, as one ratio: the top to the foot. The lesson shows it all."""
    found = [_climb(way, setting) for way in LADDERS]
    if not setting.quick:
        keep_in_lesson({outcome.key: outcome.to_json() for outcome in found})
    return found


def _climb(way: str, setting: Setting) -> Outcome:
    rungs, target = LADDERS[way]
    say(f"the ladder of {way}: {setting.pairs} rounds of {len(rungs)}")
    rounds: list[list[float]] = []
    for number in range(setting.pairs):
        upwards = number % 2 == 0
        in_turn = rungs if upwards else rungs[::-1]
        found = [
            told(rung.name, lambda rung=rung: _rate(rung, setting), _shown)() for rung in in_turn
        ]
        rounds.append(found if upwards else found[::-1])
    foot, top = ([each[place] for each in rounds] for place in (0, -1))
    return Outcome(
        key=f"ladder-{way}",
        what=f"global steps a second, `{way}-fast` / the book's loop",
        unit="ratio",
        target=target,
        found=pairs.ratio(list(zip(top, foot, strict=True))),
        how=HOW,
        details={
            rung.name: _shown(pairs.estimate([each[place] for each in rounds]).median)
            for place, rung in enumerate(rungs)
        },
        raw={"rungs": [rung.name for rung in rungs], "rounds": rounds},
    )


def _rate(rung: Rung, setting: Setting) -> float:
    steps = rung.rate * (rung.settles_s + TRAINED_S) // (QUICK_SHARE if setting.quick else 1)
    flags = (f"--global_steps={steps}", "--record_every=100", *rung.flags)
    made = by_hand(setting.place, flags, program=rung.program, together=True)
    return steps_per_second(made.records)


def table(kept: Mapping[str, Any] | None) -> str:
    """The ladder as a table in Markdown: each rung, its rate, and its gains with their intervals.

    Args:
        kept: What `results.json` keeps of a ladder; None where it holds none.
    """
    if kept is None:
        return "(Not measured yet: `python -m benchmarks ladder`.)\n"
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
    """Put the tables of all ladders that were measured into the lesson, between their marks."""
    text = lesson.read_text(encoding="utf-8")
    for way in LADDERS:
        begin, end = f"<!-- ladder-{way} -->\n", "<!-- end -->"
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{table(kept.get(f'ladder-{way}'))}\n{end}{tail}"
    lesson.write_text(text, encoding="utf-8")


def _gain(found: pairs.Estimate) -> str:
    return f"{found.median:.2f} ({found.low:.2f} to {found.high:.2f})"


def _shown(rate: float) -> str:
    return f"{rate:,.0f} steps/s"
