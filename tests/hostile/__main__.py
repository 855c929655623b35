"""Attacks in large numbers, in several processes; see the docstring of the package."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final

from rich.progress import track

import tests.hostile
from tests.hostile.campaign import KINDS, attack

SHARE: Final = 50  # inputs that one process takes at a time


def main() -> None:
    """Attack and count."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=tests.hostile.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND")
    parser.add_argument("--inputs", type=int, help="how many (default: many)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    asked = parser.parse_args()
    is_bad = False
    for kind in asked.kinds or KINDS:
        seeds = range(asked.first, asked.first + (asked.inputs or KINDS[kind][1]))
        shares = [seeds[start : start + SHARE] for start in range(0, len(seeds), SHARE)]
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
            jobs = [pool.submit(attack, kind, share) for share in shares]
            faults = [fault for job in track(jobs, kind) for fault in job.result()]
        print(*faults, f"{kind}: {len(seeds):,} inputs, {len(faults)} faults", sep="\n")
        is_bad |= bool(faults)
    sys.exit(is_bad)


if __name__ == "__main__":
    main()
