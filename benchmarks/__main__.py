"""Measure, and write `benchmarks/RESULTS.md`.

    python -m benchmarks                                       all measurements, three hours
    python -m benchmarks throughput --backend local            one measurement
    python -m benchmarks collector --quick                     check that a measurement works
    python -m benchmarks --page                                only write the pages

Run nothing else on the host during a measurement. The exit code does not depend on the targets.
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
    class_load,
    collector,
    commands,
    gpus,
    ladder,
    outgrow,
    overhead,
    placement,
    reading,
    rendering,
    reports,
    results,
    scaling,
    slurm,
    slurm_records,
    start,
    telemetry,
    throughput,
)
from benchmarks.machine import describe
from benchmarks.measure import Setting, print_progress
from benchmarks.outcome import Outcome
from benchmarks.trainings import ROOT, workplace

MEASUREMENTS: Final[Mapping[str, Callable[[Setting], list[Outcome]]]] = {
    "help": commands.measure_help,
    "render": rendering.measure,
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
    "class-load": class_load.measure,
    "slurm": slurm.measure,
    "slurm-records": slurm_records.measure,
    "scaling": scaling.measure,
}
UNMEASURED: Final = (
    ladder.unmeasured,
    class_load.unmeasured,
    slurm.unmeasured,
    slurm_records.unmeasured,
)
"""Functions for the rows that RESULTS.md shows before their first measurement."""
BACKENDS: Final = ("local", "compose")
PAIRS, QUICK_PAIRS = 10, 2


def main(argv: Sequence[str]) -> int:
    """Make the named measurements, or all."""
    arguments = _parser().parse_args(argv)
    if arguments.page:
        if "scaling" in arguments.measurements:  # it predicts all trainings again
            scaling.write_page()
        write_pages()
        return 0
    # On SIGTERM the clean-up code still stops the processes of the benchmarks.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    backends = (arguments.backend,) if arguments.backend else BACKENDS
    machine = describe(ROOT)  # once: later the benchmarks themselves are the load
    if machine["load_before"] > machine["cores"] / 4:
        print_progress(f"the load average is {machine['load_before']}; stop other programs")
    for name in arguments.measurements or MEASUREMENTS:
        when, began = time.strftime("%Y-%m-%d %H:%M %Z"), time.monotonic()
        with workplace() as place:
            setting = Setting(
                place, pairs, arguments.quick, backends, arguments.beside, arguments.listing
            )
            found = MEASUREMENTS[name](setting)
        took_s = time.monotonic() - began
        for outcome in found:
            print_progress(_line(outcome))
        print_progress(f"{name} took {took_s:.0f} s")
        if not arguments.quick:
            results.keep(found, when=when, machine=machine, took_s=took_s)
            write_pages()
    print_progress(
        "--quick: no file is written" if arguments.quick else f"see {results.FOLDER / 'RESULTS.md'}"
    )
    return 0


def write_pages() -> None:
    """Write the pages from the kept figures, with the marks of the present commit."""
    results.write_page(unmeasured())
    ladder.keep_in_lesson(results.read())
    class_load.keep_in_page(results.read())
    outgrow.keep_in_page()


def unmeasured() -> list[Outcome]:
    """Return all rows that RESULTS.md shows before their first measurement."""
    return [outcome for rows in UNMEASURED for outcome in rows()]


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
        "--beside",
        choices=throughput.BESIDE,
        default="",
        help="throughput on compose: compare only with this way (default: each)",
    )
    parser.add_argument(
        "--listing",
        default="",
        metavar="'FILE ARGUMENTS'",
        help=f"ladder: the program in the book's shape (default: {ladder.LISTING})",
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
    found = outcome.found
    low, high = (results.number(end, outcome.unit) for end in (found.low, found.high))
    median = results.number(found.median, outcome.unit)
    return f"{outcome.what}: {median} ({low} to {high}): {outcome.verdict()}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
