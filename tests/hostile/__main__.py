"""Attacks in large numbers, by hand.

    python -m tests.hostile                       all of them (20 minutes)
    python -m tests.hostile configs --inputs 1000 [--first 0]

Each kind prints a line with its faults. Exit code 1: something is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.hostile.calls import Column
from tests.hostile.campaign import KINDS, shares


def main() -> None:
    """Attack and count."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], metavar="KIND")
    parser.add_argument("--inputs", type=int, help="how many (default: all of the kind)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    asked = parser.parse_args()
    is_bad = False
    for kind in asked.kinds or KINDS:
        inputs = asked.inputs or KINDS[kind][1]
        faults = [fault for found in shares(kind, asked.first, inputs) for fault in found]
        counts = Counter(fault.column for fault in faults)
        for fault in faults:
            print(f"{kind}: {fault.column}: {fault.words}")
        found = ", ".join(f"{counts[column]} {column}" for column in Column)
        print(f"{kind}: {inputs:,} inputs: {found}")
        is_bad |= bool(faults)
    sys.exit(is_bad)


if __name__ == "__main__":
    main()
