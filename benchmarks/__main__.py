"""Measure, and write `benchmarks/RESULTS.md`.

    python -m benchmarks                                       all measurements, two hours
    python -m benchmarks throughput --backend local            one measurement
    python -m benchmarks ladder --quick                        check that a measurement works
    python -m benchmarks --page                                only write the pages

Run nothing else on the host during a measurement. The exit code does not depend on the targets.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks import board, class_load, costs, ladder, results, scaling, torchrun
from benchmarks.marks import put
from benchmarks.results import Outcome, number
from benchmarks.trainings import ROOT, Setting, print_progress, workplace

MEASUREMENTS: Final[Mapping[str, Callable[[Setting], list[Outcome]]]] = {
    "commands": costs.commands,
    "start": costs.start,
    "back-to-back": costs.back_to_back,
    "overhead": costs.overhead,
    "throughput": costs.throughput,
    "torchrun": torchrun.measure,
    "ladder": ladder.measure,
    "class-load": class_load.measure,
    "board": board.measure,
    "scaling": scaling.measure,
}
BACKENDS: Final = ("local", "compose")
PAIRS, QUICK_PAIRS = 10, 2


def main(argv: Sequence[str]) -> int:
    """Make the named measurements, or all."""
    arguments = _parser().parse_args(argv)
    if arguments.page:
        if "scaling" in arguments.measurements:  # it predicts all trainings again
            scaling.write(json.loads((ROOT / "benchmarks/scaling.json").read_text("utf-8")))
        write_pages(results.read())
        return 0
    # On SIGTERM the clean-up code still stops the processes of the benchmarks.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    backends = (arguments.backend,) if arguments.backend else BACKENDS
    machine = results.host(ROOT)  # once: later the benchmarks themselves are the load
    if machine["load_before"] > machine["cores"] / 4:
        print_progress(f"the load average is {machine['load_before']}; stop other programs")
    for name in arguments.measurements or MEASUREMENTS:
        when, began = time.strftime("%Y-%m-%d %H:%M %Z"), time.monotonic()
        with workplace() as place:
            found = MEASUREMENTS[name](Setting(place, pairs, arguments.quick, backends))
        took_s = time.monotonic() - began
        for outcome in found:
            print_progress(_line(outcome))
        print_progress(f"{name} took {took_s:.0f} s")
        if not arguments.quick:
            results.keep(found, when=when, machine=machine, took_s=took_s)
            write_pages(results.read())
    print_progress("--quick: no file is written" if arguments.quick else "see the pages")
    return 0


def write_pages(kept: Mapping[str, Mapping[str, Any]]) -> None:
    """Write `RESULTS.md`, and the figures in the documents."""
    (results.FOLDER / "RESULTS.md").write_text(results.markdown(kept), encoding="utf-8")
    for name, marks in (
        ("docs/tutorials/lessons/speed.md", ladder.tables(kept)),
        ("docs/zh/tutorials/lessons/speed.md", ladder.tables(kept)),
        ("docs/evidence/seats.md", class_load.tables(kept)),
    ):
        text = (ROOT / name).read_text(encoding="utf-8")
        for mark, table in marks.items():
            text = put(text, mark, table)
        (ROOT / name).write_text(text, encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "measurements",
        nargs="*",
        choices=[*MEASUREMENTS, []],
        metavar="WHAT",
        help=f"one of {', '.join(MEASUREMENTS)} (default: all)",
    )
    parser.add_argument(
        "--backend", choices=BACKENDS, help="measure only this backend (default: both)"
    )
    parser.add_argument(
        "--page", action="store_true", help="write the pages from kept figures without measuring"
    )
    parser.add_argument("--pairs", type=int, help=f"the number of pairs (default: {PAIRS})")
    parser.add_argument(
        "--quick", action="store_true", help="measure with small numbers, and write no file"
    )
    return parser


def _line(outcome: Outcome) -> str:
    if outcome.found is None:
        return f"{outcome.what}: not measured: {outcome.why_not}"
    found = (outcome.found.median, outcome.found.low, outcome.found.high)
    median, low, high = (number(each, outcome.unit) for each in found)
    return f"{outcome.what}: {median} ({low} to {high}): {outcome.verdict()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
