"""Measure, and write `benchmarks/RESULTS.md`.

    python -m benchmarks                                       everything, three hours
    python -m benchmarks throughput --backend local            one measurement
    python -m benchmarks collector --quick                     a look at whether it works
    python -m benchmarks --page                                no measurement, only the pages

Nothing else may run on the machine meanwhile. The exit code does not tell whether targets are met.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from benchmarks import (
    back_to_back,
    beside_compose,
    collector,
    commands,
    evidence,
    gpus,
    in_graph,
    ladder,
    overhead,
    placement,
    reading,
    rendering,
    reports,
    results,
    scaling,
    slow_link,
    start,
    telemetry,
    throughput,
)
from benchmarks.machine import describe
from benchmarks.measure import Setting, say
from benchmarks.outcome import Outcome
from benchmarks.trainings import ROOT, workplace

MEASUREMENTS: Final[Mapping[str, Callable[[Setting], list[Outcome]]]] = {
    "help": commands.measure_help,
    "render": rendering.measure,
    "compose-config": beside_compose.measure,
    "placement": placement.measure,
    "gpus": gpus.measure,
    "collector": collector.measure,
    "reading": reading.measure,
    "telemetry": telemetry.measure,
    "report": reports.measure,
    "start": start.measure,
    "ladder": ladder.measure,
    "back-to-back": back_to_back.measure,
    "overhead": overhead.measure,
    "throughput": throughput.measure,
    "scaling": scaling.measure,
    "slow-link": slow_link.measure,
    "in-graph": in_graph.measure,
}
UNMEASURED: Final = (beside_compose.unmeasured, ladder.unmeasured)
"""Rows that RESULTS.md shows also before they are measured."""
BACKENDS: Final = ("local", "compose")
PAIRS, QUICK_PAIRS = 10, 2


def main(argv: Sequence[str]) -> int:
    """Measure what is asked for; everything by default."""
    arguments = _parser().parse_args(argv)
    if arguments.page:
        write_pages()
        return 0
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    backends = (arguments.backend,) if arguments.backend else BACKENDS
    machine = describe(ROOT)  # once: what comes later is a load of our own making
    if machine["load_before"] > machine["cores"] / 4:
        say(f"the load average is {machine['load_before']}: is anything else running?")
    for name in arguments.measurements or MEASUREMENTS:
        when, began = time.strftime("%Y-%m-%d %H:%M %Z"), time.monotonic()
        with workplace() as place:
            setting = Setting(
                place, pairs, arguments.quick, backends, arguments.beside, arguments.listing
            )
            found = MEASUREMENTS[name](setting)
        took_s = time.monotonic() - began
        for outcome in found:
            say(_line(outcome))
        say(f"{name} took {took_s:.0f} s")
        if not arguments.quick:
            results.keep(found, when=when, machine=machine, took_s=took_s)
            write_pages()
    say("nothing is written" if arguments.quick else f"see {results.FOLDER / 'RESULTS.md'}")
    return 0


def write_pages() -> None:
    """Write the pages that are made of kept figures, with marks as of the present commit."""
    results.write_page(unmeasured())
    ladder.keep_in_lesson(results.read())
    scaling.write_page()
    evidence.main(())


def unmeasured() -> list[Outcome]:
    """All rows that RESULTS.md shows also before they are measured."""
    return [outcome for rows in UNMEASURED for outcome in rows()]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("measurements", nargs="*", choices=[*MEASUREMENTS, []], metavar="WHAT")
    parser.add_argument(
        "--backend", choices=BACKENDS, help="of what is measured on both (default: both)"
    )
    parser.add_argument(
        "--beside",
        choices=throughput.BESIDE,
        default="",
        help="of the throughput on compose (default: each)",
    )
    parser.add_argument(
        "--listing",
        default="",
        metavar="'FILE ARGUMENTS'",
        help=f"of the ladder: a program in the book's shape (default: {ladder.LISTING})",
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing; write the pages from kept figures"
    )
    parser.add_argument("--pairs", type=int, help=f"default: {PAIRS}")
    parser.add_argument(
        "--quick", action="store_true", help="small numbers, for a look; nothing is written"
    )
    return parser


def _line(outcome: Outcome) -> str:
    if outcome.found is None:
        return f"{outcome.what}: not measured: {outcome.why_not}"
    found = outcome.found
    low, high = (results.number(end, outcome.unit) for end in (found.low, found.high))
    median = results.number(found.median, outcome.unit)
    return f"{outcome.what}: {median} ({low} to {high}): {outcome.verdict()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
